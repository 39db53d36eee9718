// SPDX-License-Identifier: Apache-2.0
// TRIMUL_UNDER_ASAN: 1 in builds with AddressSanitizer, 0 in others. GCC says so by a macro, clang by a feature.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define TRIMUL_UNDER_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define TRIMUL_UNDER_ASAN 1
#endif
#endif
#ifndef TRIMUL_UNDER_ASAN
#define TRIMUL_UNDER_ASAN 0
#endif

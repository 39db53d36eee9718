# SPDX-License-Identifier: Apache-2.0
# cmake -D SOURCE=... -D OUT=... -P write_commit.cmake: a header with the commit that is being built, "-dirty" behind it where files differ
# from it. Run at every build, so that what a program says of itself stays true; the header changes only when the commit does.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 --exclude=*
                OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(commit unknown)
endif()
set(text "#pragma once\nnamespace trimul::core {\ninline constexpr char kCommit[] = \"${commit}\";\n}\n")
set(former "")
if(EXISTS ${OUT})
  file(READ ${OUT} former)
endif()
if(NOT text STREQUAL former)
  file(WRITE ${OUT} "${text}")
endif()

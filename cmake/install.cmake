# SPDX-License-Identifier: Apache-2.0
# The install tree: the library, its two headers, the command with its demo's structures, and what find_package(trimul) and pkg-config need. No file in it
# holds an absolute path, so that the tree can be moved.
include(CMakePackageConfigHelpers)

install(TARGETS trimul EXPORT trimulTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library)
if(TARGET trimul_cli)
  install(TARGETS trimul_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cli)
  # The demo's structures, where the command looks for them (cli/demo_structure.cpp).
  install(DIRECTORY examples/data/ DESTINATION share/trimul/data COMPONENT cli)
endif()
install(FILES include/trimul/trimul.h include/trimul/trimul.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/trimul COMPONENT development)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/licenses/trimul COMPONENT library)

set(trimul_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/trimul)
install(EXPORT trimulTargets NAMESPACE trimul:: DESTINATION ${trimul_package_dir} COMPONENT development)
configure_package_config_file(cmake/trimulConfig.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/trimulConfig.cmake
                              INSTALL_DESTINATION ${trimul_package_dir})
# Before 1.0 a minor version may change the ABI.
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/trimulConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trimulConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/trimulConfigVersion.cmake
        DESTINATION ${trimul_package_dir} COMPONENT development)

file(RELATIVE_PATH TRIMUL_PC_TO_PREFIX /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" TRIMUL_PC_TO_PREFIX "${TRIMUL_PC_TO_PREFIX}")
configure_file(cmake/trimul.pc.in ${CMAKE_CURRENT_BINARY_DIR}/trimul.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/trimul.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# SPDX-License-Identifier: Apache-2.0
# What the Python package holds beside its Python files, as the component `python`: `cmake --install build --component python --prefix SITE_PACKAGES`.
# A plain install leaves it out. Libraries are single files under their sonames, because a wheel holds no links.
install(FILES $<TARGET_FILE:trimul> DESTINATION trimul/lib RENAME libtrimul.so.${PROJECT_VERSION_MAJOR} COMPONENT python EXCLUDE_FROM_ALL)
if(TARGET trimul_torch)
  install(FILES $<TARGET_FILE:trimul_torch> DESTINATION trimul/lib COMPONENT python EXCLUDE_FROM_ALL)
endif()
if(TARGET trimul_cli)
  install(PROGRAMS $<TARGET_FILE:trimul_cli> DESTINATION trimul/bin COMPONENT python EXCLUDE_FROM_ALL)
  install(DIRECTORY examples/data/ DESTINATION trimul/share/trimul/data COMPONENT python EXCLUDE_FROM_ALL)
endif()
set(TRIMUL_BUNDLED_LICENSES "" CACHE PATH "Licences of the libraries that are put into the wheel beside this one")
if(TRIMUL_BUNDLED_LICENSES)
  install(DIRECTORY ${TRIMUL_BUNDLED_LICENSES}/ DESTINATION trimul/licenses COMPONENT python EXCLUDE_FROM_ALL)
endif()

# Pages that are printed by programs: cmake --build build/release --target docs
add_executable(settings_page EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/tools/docs/settings_page.cc)
target_link_libraries(settings_page PRIVATE rueda_base)
add_custom_target(docs COMMAND settings_page > ${CMAKE_SOURCE_DIR}/docs/settings.md VERBATIM)
set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/unit/base_settings_page_test.cc PROPERTIES
  COMPILE_DEFINITIONS "RUEDA_SETTINGS_PAGE=\"${CMAKE_SOURCE_DIR}/docs/settings.md\"")

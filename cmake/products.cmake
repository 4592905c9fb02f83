# What is shipped: librueda.so (core behind the C ABI) and the rueda command.
file(GLOB capi_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/rueda/capi/*.cc)
if(capi_sources)
  add_library(rueda SHARED ${capi_sources})
  target_link_libraries(rueda PRIVATE rueda_runtime)
  target_link_options(rueda PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,-z,defs
    -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/exports.map)
  set_target_properties(rueda PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/exports.map)
endif()

# The launcher and the command-line tool use base and store only: no core, no framework.
file(GLOB_RECURSE launch_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/launch/*.cc)
file(GLOB_RECURSE cli_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.cc)
if(launch_sources)
  add_library(rueda_launch STATIC ${launch_sources})
  target_link_libraries(rueda_launch PUBLIC rueda_store fmt::fmt-header-only)
  rueda_room_test(launch rueda_launch)
endif()
if(cli_sources)
  add_executable(rueda_cli ${cli_sources})
  set_target_properties(rueda_cli PROPERTIES OUTPUT_NAME rueda)
  target_link_libraries(rueda_cli PRIVATE rueda_launch)
  target_link_options(rueda_cli PRIVATE -static-libstdc++ -static-libgcc)
endif()

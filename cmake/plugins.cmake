# Framework adapters: each links nothing but glibc, and finds its framework and librueda.so when it is loaded.
file(GLOB tensorflow_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/plugins/tensorflow/*.cc)
set(tensorflow_exports ${CMAKE_SOURCE_DIR}/src/plugins/tensorflow/exports.map)
add_library(rueda_tensorflow MODULE ${tensorflow_sources})
target_link_libraries(rueda_tensorflow PRIVATE rueda_flags ${CMAKE_DL_LIBS})
target_link_options(rueda_tensorflow PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL
  -Wl,--version-script=${tensorflow_exports})
if(NOT RUEDA_SANITIZE)
  target_link_options(rueda_tensorflow PRIVATE -Wl,-z,defs)
endif()
set_target_properties(rueda_tensorflow PROPERTIES LINK_DEPENDS ${tensorflow_exports})
install(TARGETS rueda_tensorflow LIBRARY DESTINATION lib COMPONENT rueda)

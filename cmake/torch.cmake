# librueda_torch.so: needs glibc and librueda.so, which is in the process before it is loaded.
file(GLOB torch_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/plugins/torch/*.cc)
add_library(rueda_torch SHARED ${torch_sources})
target_link_libraries(rueda_torch PRIVATE rueda_flags rueda ${CMAKE_DL_LIBS})
target_link_options(rueda_torch PRIVATE -static-libstdc++ -static-libgcc -Wl,--exclude-libs,ALL -Wl,-z,nodelete
  -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/exports.map)
set_target_properties(rueda_torch PROPERTIES LINK_DEPENDS ${CMAKE_SOURCE_DIR}/cmake/exports.map
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN)
install(TARGETS rueda_torch LIBRARY DESTINATION lib COMPONENT rueda)

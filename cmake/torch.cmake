# librueda_torch.so: needs glibc and librueda.so, which is in the process before it is loaded.
file(GLOB torch_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/plugins/torch/*.cc)
add_library(rueda_torch SHARED ${torch_sources})
target_link_libraries(rueda_torch PRIVATE rueda_flags rueda ${CMAKE_DL_LIBS})
target_link_options(rueda_torch PRIVATE -Wl,-z,nodelete)
rueda_needs_glibc_alone(rueda_torch)
rueda_exports_only(rueda_torch ${CMAKE_SOURCE_DIR}/cmake/exports.map)
set_target_properties(rueda_torch PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN)
install(TARGETS rueda_torch LIBRARY DESTINATION lib COMPONENT rueda)

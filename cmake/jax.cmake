# librueda_jax.so: needs glibc and librueda.so, which is in the process before it is loaded.
file(GLOB jax_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/plugins/jax/*.cc)
add_library(rueda_jax SHARED ${jax_sources})
target_link_libraries(rueda_jax PRIVATE rueda_flags rueda)
rueda_needs_glibc_alone(rueda_jax)
rueda_exports_only(rueda_jax ${CMAKE_SOURCE_DIR}/cmake/exports.map)
set_target_properties(rueda_jax PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH $ORIGIN)
install(TARGETS rueda_jax LIBRARY DESTINATION lib COMPONENT rueda)

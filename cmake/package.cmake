# find_package(rueda): from an installed prefix (the wheel's rueda/ folder is one) and from a build tree
# (-Drueda_DIR=<build tree>). Gives the target rueda::rueda: the library, rueda.h and rueda.hpp.
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ruedaConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_file(${CMAKE_SOURCE_DIR}/cmake/ruedaConfig.cmake ${CMAKE_BINARY_DIR}/ruedaConfig.cmake COPYONLY)

file(GLOB public_headers CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/include/rueda/*.h ${CMAKE_SOURCE_DIR}/include/rueda/*.hpp)
install(FILES ${public_headers} DESTINATION include/rueda COMPONENT rueda)
install(FILES ${CMAKE_BINARY_DIR}/ruedaConfig.cmake ${CMAKE_BINARY_DIR}/ruedaConfigVersion.cmake
        DESTINATION lib/cmake/rueda COMPONENT rueda)
if(TARGET rueda)
  target_include_directories(rueda INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/include>
                                             $<INSTALL_INTERFACE:include>)
  target_compile_features(rueda INTERFACE cxx_std_20)
  install(TARGETS rueda EXPORT ruedaTargets LIBRARY DESTINATION lib COMPONENT rueda)
  install(EXPORT ruedaTargets NAMESPACE rueda:: DESTINATION lib/cmake/rueda COMPONENT rueda)
  export(EXPORT ruedaTargets NAMESPACE rueda:: FILE ${CMAKE_BINARY_DIR}/ruedaTargets.cmake)
endif()
if(TARGET rueda_cli)
  install(TARGETS rueda_cli RUNTIME DESTINATION bin COMPONENT rueda)
endif()

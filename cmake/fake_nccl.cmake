# The tests' own libnccl (tests/nccl/README.md): build/<preset>/fake_nccl/libnccl.so.2. `partial` is a library that has
# little more than a version.
if(RUEDA_BUILD_TESTS)
  file(GLOB fake_nccl CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/nccl/*.cc)
  add_library(fake_nccl MODULE ${fake_nccl})
  target_link_libraries(fake_nccl PRIVATE rueda_kernels ${CMAKE_DL_LIBS})
  add_library(fake_nccl_partial MODULE ${CMAKE_SOURCE_DIR}/tests/nccl/partial/partial.cc)
  target_link_libraries(fake_nccl_partial PRIVATE rueda_flags)
  set_target_properties(fake_nccl fake_nccl_partial PROPERTIES PREFIX "" SUFFIX .so.2 UNITY_BUILD OFF
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_nccl)
  set_target_properties(fake_nccl PROPERTIES OUTPUT_NAME libnccl)
  set_target_properties(fake_nccl_partial PROPERTIES OUTPUT_NAME libnccl_partial)
  add_dependencies(rueda_test_helpers fake_nccl fake_nccl_partial)
  target_link_options(fake_nccl PRIVATE -Wl,--exclude-libs,ALL)
  # Only `partial` has the name that the loader knows: jobs of other tests must not find the tests' library by it.
  target_link_options(fake_nccl_partial PRIVATE -Wl,-soname,libnccl.so.2)
  # NVIDIA's own library, if the development environment has its wheel: it loads without a GPU.
  file(GLOB nvidia_nccl ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/nvidia/nccl)
  if(RUEDA_NVIDIA_NCCL)
    set(nvidia_nccl ${RUEDA_NVIDIA_NCCL})
  endif()
  foreach(program runtime_test backend_test)
    if(TARGET ${program})
      target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests/nccl)
      target_compile_definitions(${program} PRIVATE RUEDA_FAKE_NCCL="${CMAKE_BINARY_DIR}/fake_nccl"
                                 RUEDA_NVIDIA_NCCL="${nvidia_nccl}")
      add_dependencies(${program} fake_nccl fake_nccl_partial)
      if(nvidia_nccl)
        target_include_directories(${program} SYSTEM PRIVATE ${nvidia_nccl}/include ${CMAKE_SOURCE_DIR}/tests/nccl/cuda_stubs)
      endif()
    endif()
  endforeach()
endif()

# The kernels for CUDA devices: clang compiles them to PTX, and the library has the text. No toolkit is needed.
# PTX 5.0 for sm_60 is what the driver of every supported device compiles.
find_program(RUEDA_CLANG NAMES clang-14 clang clang-15 clang-16 clang-17 clang-18 clang-19
             HINTS /usr/lib/llvm-14/bin)
if(NOT RUEDA_CLANG)
  message(FATAL_ERROR "rueda needs clang to compile its kernels for CUDA devices: apt install clang-14")
endif()
set(kernels ${CMAKE_SOURCE_DIR}/src/rueda/memory/cuda)
set(RUEDA_KERNELS_PTX ${CMAKE_BINARY_DIR}/kernels.ptx)
add_custom_command(
  OUTPUT ${RUEDA_KERNELS_PTX}
  COMMAND ${RUEDA_CLANG} -x cuda --cuda-device-only --cuda-gpu-arch=sm_60 -nocudainc -nocudalib
          --cuda-path=/nonexistent -Xclang -target-feature -Xclang +ptx50  # whatever toolkit this machine has
          -std=c++20 -O3 -ffp-contract=off -Wall -Wextra -Werror -I ${CMAKE_SOURCE_DIR}/src
          -S ${kernels}/kernels.cu -o ${RUEDA_KERNELS_PTX}
  DEPENDS ${kernels}/kernels.cu ${kernels}/device_kernels.h
          ${kernels}/device_adasum.h ${kernels}/device_groups.h ${kernels}/device_table.h ${kernels}/device_types.h
  COMMENT "Compiling the kernels for CUDA devices")
add_custom_command(
  OUTPUT ${CMAKE_BINARY_DIR}/kernels_ptx.cc
  COMMAND ${CMAKE_COMMAND} -DPTX=${RUEDA_KERNELS_PTX} -DOUT=${CMAKE_BINARY_DIR}/kernels_ptx.cc
          -P ${CMAKE_SOURCE_DIR}/cmake/embed_ptx.cmake
  DEPENDS ${RUEDA_KERNELS_PTX} ${CMAKE_SOURCE_DIR}/cmake/embed_ptx.cmake)
target_sources(rueda_memory PRIVATE ${CMAKE_BINARY_DIR}/kernels_ptx.cc)

# The tests' own libcuda: build/<preset>/fake_cuda/libcuda.so.1, which runs the kernels on the host.
if(RUEDA_BUILD_TESTS)
  file(GLOB fake_cuda CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/cuda/*.cc)
  add_library(fake_cuda SHARED ${fake_cuda})
  target_link_libraries(fake_cuda PRIVATE rueda_flags Threads::Threads)
  # Without a name of its own the loader does not take it for the libcuda.so.1 that later tests look for.
  set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 NO_SONAME ON UNITY_BUILD OFF
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/fake_cuda)
  add_dependencies(rueda_test_helpers fake_cuda)
  foreach(program memory_test runtime_test backend_test)
    if(TARGET ${program})
      target_link_libraries(${program} PRIVATE ${CMAKE_DL_LIBS})
      target_include_directories(${program} PRIVATE ${CMAKE_SOURCE_DIR}/tests/cuda)
      target_compile_definitions(${program} PRIVATE RUEDA_FAKE_CUDA="${CMAKE_BINARY_DIR}/fake_cuda/libcuda.so.1"
                                 RUEDA_KERNELS_PTX="${RUEDA_KERNELS_PTX}")
      add_dependencies(${program} fake_cuda)
    endif()
  endforeach()
  # NVIDIA's header, to compare ours with: of a toolkit, or of TensorFlow in the development environment.
  file(GLOB nvidia_cuda /usr/local/cuda*/include/cudaTypedefs.h
       ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/tensorflow/include/external/cuda_cudart/include/cudaTypedefs.h)
  if(nvidia_cuda AND TARGET memory_test)
    list(GET nvidia_cuda 0 nvidia_cuda)
    cmake_path(GET nvidia_cuda PARENT_PATH nvidia_cuda)
    target_include_directories(memory_test SYSTEM PRIVATE ${nvidia_cuda})
  endif()
endif()

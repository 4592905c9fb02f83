# rueda_module(<name> DEPS <libs>): a static library of src/rueda/<name>/**.cc and, where tests/unit/<name>_*test.cc or
# tests/conformance/<name>_*test.cc exist, one test program <name>_test.
find_library(RUEDA_LIBCRYPTO NAMES libcrypto.a REQUIRED)  # static: the wheel depends on glibc alone
find_library(RUEDA_LIBYAML NAMES libyaml.a REQUIRED)      # the same; for `rueda run --config-file`
if(RUEDA_BUILD_TESTS)
  find_package(GTest REQUIRED)
  find_library(RUEDA_RAPIDCHECK NAMES rapidcheck REQUIRED)  # Debian: librapidcheck-dev
  add_custom_target(rueda_tests)  # every C++ test program; their paths are listed in tests.txt of the build tree
  add_custom_target(rueda_test_helpers)  # libraries that stand in for NVIDIA's, and programs that tests in Python start
  add_dependencies(rueda_tests rueda_test_helpers)
endif()
# Messages name src/…, not the machine a wheel was built on.
# Under ccache paths are relative to build/<preset>.
target_compile_options(rueda_flags INTERFACE -fmacro-prefix-map=${CMAKE_SOURCE_DIR}/= -fmacro-prefix-map=../../=)
if(RUEDA_SANITIZE)
  target_compile_options(rueda_flags INTERFACE -fno-sanitize-recover=all)  # a finding fails the test
  target_compile_options(rueda_flags INTERFACE -fno-sanitize=object-size)  # AddressSanitizer finds what is too far
  if(NOT RUEDA_FUZZ)
    # A third of what a file takes to compile. AddressSanitizer finds null pointers that are used; the parsers, which
    # read what may lie anywhere, have all checks in the preset fuzz.
    target_compile_options(rueda_flags INTERFACE -fno-sanitize=null,alignment,vptr)
  endif()
endif()
if(RUEDA_JOIN)  # those that cannot be joined are exempt at the end of products.cmake
  set(CMAKE_UNITY_BUILD ON)
  set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
endif()

function(rueda_module name)
  cmake_parse_arguments(MODULE "" "" "DEPS" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/rueda/${name}/*.cc)
  if(sources)
    add_library(rueda_${name} STATIC ${sources})
    target_link_libraries(rueda_${name} PUBLIC rueda_flags ${MODULE_DEPS} Threads::Threads)
  else()
    add_library(rueda_${name} INTERFACE)
    target_link_libraries(rueda_${name} INTERFACE rueda_flags ${MODULE_DEPS} Threads::Threads)
  endif()
  rueda_module_test(${name} rueda_${name})
endfunction()

function(rueda_module_test name)
  if(NOT RUEDA_BUILD_TESTS)
    return()
  endif()
  file(GLOB tests CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/tests/unit/${name}_*test.cc
       ${CMAKE_SOURCE_DIR}/tests/conformance/${name}_*test.cc)
  if(tests)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE ${ARGN} GTest::gmock GTest::gtest_main ${RUEDA_RAPIDCHECK})
    add_dependencies(rueda_tests ${name}_test)
    set_property(GLOBAL APPEND PROPERTY RUEDA_TEST_PROGRAMS ${name}_test)
  endif()
endfunction()

# A shared library or program that needs nothing but glibc (and, for plugins, librueda.so), and shows only what the
# version script names. Zig's compiler links its C++ library statically anyway, and its linker lacks --exclude-libs.
include(CheckLinkerFlag)
check_linker_flag(CXX "-static-libstdc++" RUEDA_HAS_STATIC_LIBSTDCXX)
check_linker_flag(CXX "-Wl,--exclude-libs,ALL" RUEDA_HAS_EXCLUDE_LIBS)
function(rueda_needs_glibc_alone target)
  if(RUEDA_HAS_STATIC_LIBSTDCXX)
    target_link_options(${target} PRIVATE -static-libstdc++ -static-libgcc)
  endif()
endfunction()
function(rueda_exports_only target version_script)
  if(RUEDA_HAS_EXCLUDE_LIBS)
    target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
  endif()
  target_link_options(${target} PRIVATE -Wl,--version-script=${version_script})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${version_script})
endfunction()

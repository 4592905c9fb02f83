# What is shipped: librueda.so (core behind the C ABI) and the rueda command.
file(GLOB capi_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/rueda/capi/*.cc)
if(capi_sources)
  add_library(rueda SHARED ${capi_sources})
  target_link_libraries(rueda PRIVATE rueda_runtime)
  rueda_needs_glibc_alone(rueda)
  rueda_exports_only(rueda ${CMAKE_SOURCE_DIR}/cmake/exports.map)
  if(NOT RUEDA_SANITIZE)  # the sanitizers' own symbols come from the program
    target_link_options(rueda PRIVATE -Wl,-z,defs)
  endif()
  if(RUEDA_LIBC_MEMORY)  # see libc_memory.cc
    target_sources(rueda PRIVATE ${CMAKE_SOURCE_DIR}/cmake/libc_memory.cc)
    target_link_options(rueda PRIVATE -Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset,--wrap=memcmp)
  endif()
  rueda_module_test(capi rueda rueda_flags)
endif()

# The launcher and the command-line tool use base, store, membership and status only: no core, no framework.
file(GLOB_RECURSE launch_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/launch/*.cc)
file(GLOB_RECURSE cli_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/cli/*.cc)
if(launch_sources)
  add_library(rueda_launch STATIC ${launch_sources})
  target_link_libraries(rueda_launch PUBLIC rueda_store rueda_membership rueda_status rueda_fmt)
  rueda_module_test(launch rueda_launch)
endif()
# What a training step computes and exchanges: the command knows it, and what simulates a job may.
include(${CMAKE_SOURCE_DIR}/cmake/models.cmake)
file(GLOB workload_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/workload/*.cc)
add_library(rueda_workload STATIC ${workload_sources} ${CMAKE_BINARY_DIR}/model_files.cc)
target_link_libraries(rueda_workload PUBLIC rueda_base rueda_fmt)
rueda_module_test(workload rueda_workload)
# `rueda bench` loads librueda.so as programs do, so the command still contains no core.
file(GLOB bench_tool_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/bench/*.cc)
if(bench_tool_sources)
  add_library(rueda_bench STATIC ${bench_tool_sources})
  target_link_libraries(rueda_bench PUBLIC rueda_launch rueda_workload ${CMAKE_DL_LIBS})
  rueda_module_test(bench rueda_bench)
endif()
# rueda_tool(<name> LIBRARIES <libs>): a static library of src/<name>/*.cc for the command, and its test program.
function(rueda_tool name)
  cmake_parse_arguments(TOOL "" "" "LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  add_library(rueda_${name} STATIC ${sources})
  target_link_libraries(rueda_${name} PUBLIC ${TOOL_LIBRARIES})
  rueda_module_test(${name} rueda_${name})
endfunction()
rueda_tool(doctor LIBRARIES rueda_bench)
rueda_tool(preflight LIBRARIES rueda_doctor)
# `rueda timeline` reads what the core has recorded; of the core it knows the format only.
rueda_tool(timeline LIBRARIES rueda_trace rueda_workload rueda_fmt)
# `rueda status` and `rueda stacks` ask running processes; of the core they know how to find and ask them.
rueda_tool(observe LIBRARIES rueda_status rueda_fmt)
# `rueda simulate` runs the pure parts of the core under virtual time; of the rest of it, nothing is linked.
rueda_tool(simulate LIBRARIES rueda_bench rueda_control rueda_backend rueda_timeline)
if(cli_sources)
  add_executable(rueda_cli ${cli_sources})
  # In a folder of its own: beside librueda.so its name would hide the target `rueda` from Ninja.
  set_target_properties(rueda_cli PROPERTIES OUTPUT_NAME rueda RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  target_link_libraries(rueda_cli PRIVATE rueda_launch rueda_bench rueda_doctor rueda_preflight rueda_timeline rueda_observe rueda_simulate
                        ${RUEDA_LIBYAML})
  rueda_needs_glibc_alone(rueda_cli)
endif()

include(${CMAKE_SOURCE_DIR}/cmake/fuzz.cmake)

if(RUEDA_BUILD_TESTS)
  get_property(test_programs GLOBAL PROPERTY RUEDA_TEST_PROGRAMS)
  set(test_lines "")
  foreach(program IN LISTS test_programs)
    string(APPEND test_lines "$<TARGET_FILE:${program}>\n")
  endforeach()
  file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/tests.txt CONTENT "${test_lines}")
endif()
# Not joined with others (modules.cmake): Highway compiles each of its files for several instruction sets, two headers
# declare the same structures for TCP, and a class of sim.cc has members of the file's own types.
set_target_properties(rueda_kernels PROPERTIES UNITY_BUILD OFF)
set_source_files_properties(${CMAKE_SOURCE_DIR}/tests/unit/runtime_prepared_test.cc PROPERTIES
                            SKIP_UNITY_BUILD_INCLUSION ON)  # it replaces operator new
# The command links the costs of local calls, and nothing that runs them.
foreach(file transport/tcp/channel transport/sim/sim backend/local/cost)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/rueda/${file}.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endforeach()
include(${CMAKE_SOURCE_DIR}/cmake/package.cmake)

# Programs that tests start in several copies.
if(RUEDA_BUILD_TESTS)
  # Meets the others; tests/multiprocess/test_rendezvous.py starts it by hand and under launchers.
  add_executable(rendezvous_probe ${CMAKE_SOURCE_DIR}/tests/multiprocess/rendezvous_probe.cc)
  target_link_libraries(rendezvous_probe PRIVATE rueda_store)
  # One rank of random programs over MPI; tests/multiprocess/test_mpi.py starts it under each mpirun.
  add_executable(mpi_programs ${CMAKE_SOURCE_DIR}/tests/multiprocess/mpi_programs.cc)
  target_link_libraries(mpi_programs PRIVATE rueda_runtime GTest::gmock GTest::gtest_main)
  add_dependencies(rueda_test_helpers rendezvous_probe mpi_programs)
endif()

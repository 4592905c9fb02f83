# Benchmarks: bench/<module>_bench.cc becomes the program <module>_bench. Built on demand only:
#   cmake --build build/dev --target kernels_bench
find_package(benchmark QUIET)
file(GLOB bench_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/*_bench.cc)
foreach(source ${bench_sources})
  get_filename_component(program ${source} NAME_WE)
  string(REGEX REPLACE "_bench$" "" module ${program})
  file(STRINGS ${source} uses_library REGEX "#include <benchmark/benchmark.h>")
  if(uses_library AND NOT benchmark_FOUND)
    continue()
  endif()
  add_executable(${program} EXCLUDE_FROM_ALL ${source})
  target_link_libraries(${program} PRIVATE rueda_${module})
  if(uses_library)
    target_link_libraries(${program} PRIVATE benchmark::benchmark)
  endif()
endforeach()

# What bench/front_ends/graph_cost.py puts in the engine's place to see what the front end costs alone.
add_library(idle_engine SHARED EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/front_ends/idle_engine.cc)
target_include_directories(idle_engine PRIVATE ${CMAKE_SOURCE_DIR}/include)

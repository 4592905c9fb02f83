# find_package(rueda) -> rueda::rueda
if(NOT EXISTS "${CMAKE_CURRENT_LIST_DIR}/ruedaTargets.cmake")
  set(rueda_FOUND FALSE)
  set(rueda_NOT_FOUND_MESSAGE "${CMAKE_CURRENT_LIST_DIR} holds no built librueda.so; build the target 'rueda' first.")
  return()
endif()
include("${CMAKE_CURRENT_LIST_DIR}/ruedaTargets.cmake")

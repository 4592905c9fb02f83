# Writes the gradient lists of bench/models/ into a source file, so that the installed command has them.
file(GLOB model_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/bench/models/*.json)
set(model_entries "")
foreach(file ${model_files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND model_entries "    {\"${name}\", R\"json(${text})json\"},\n")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
endforeach()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/model_files.cc @ONLY CONTENT [[// Written by cmake/models.cmake.
#include "workload/model_files.h"

namespace rueda::workload {
namespace {
constexpr ModelFile kFiles[] = {
@model_entries@};
}
const std::span<const ModelFile> kModelFiles = kFiles;
}  // namespace rueda::workload
]])

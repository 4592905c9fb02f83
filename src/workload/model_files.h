// The files of bench/models/, embedded at build time (cmake/models.cmake writes model_files.cc).
#pragma once

#include <span>
#include <string_view>

namespace rueda::workload {

struct ModelFile {
  std::string_view name, text;
};
extern const std::span<const ModelFile> kModelFiles;

}  // namespace rueda::workload

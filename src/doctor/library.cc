#include "doctor/library.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "bench/library.h"
#include "doctor/hardware.h"
#include "doctor/mpi.h"
#include "rueda/base/release.h"

namespace rueda::doctor {

namespace {

// The NCCL that tensors on a GPU would use. about: what the library says of itself.
void add_nccl(Section& section, const nlohmann::json& about) {
  const char* const operations = getenv("RUEDA_GPU_OPERATIONS");
  const std::string problem = about.is_object() ? about.value("nccl_problem", "") : "";
  const int version = about.is_object() ? about.value("nccl", 0) : 0;
  std::string text = "not used by the settings";
  if (version != 0)
    text = nccl_text(version);
  else if (!problem.empty())
    text = "none: " + problem;
  else if (find_cuda_driver(cuda_library()).version == 0)
    text = "not looked for, because there is no CUDA driver";
  else if (operations != nullptr)
    text = fmt::format("not used: RUEDA_GPU_OPERATIONS={}", operations);
  section.add("NCCL", text);
}

}  // namespace

Section examine_library(const std::string& own_path) {
  Section section{.title = "rueda", .facts = {}, .problems = {}};
  section.add("command", fmt::format("{}, {}", kRelease, own_path));
  const Result<bench::Library> opened = bench::open_library(own_path);
  if (!opened.is_ok()) {
    section.fail(opened.status().why + ".");
    return section;
  }
  const bench::Library& library = opened.value();
  const auto about = nlohmann::json::parse(library.describe(), nullptr, false);
  const auto text = [&](const char* key) {
    return about.is_object() && about.contains(key) && about[key].is_string() ? about[key].get<std::string>()
                                                                              : std::string("unknown");
  };
  const std::string release = text("release");
  section.add("library", fmt::format("{}, {}", release, library.path));
  section.add("built by", text("build"));
  section.add("instruction set", text("simd"));
  if (release != kRelease)
    section.fail(fmt::format(
        "the command has release {}, but the library {} has release {}; install both from one wheel.",
        kRelease, library.path, release));
  if (void* const buffer = library.alloc(1)) {
    library.release_memory(buffer);
    section.add("buckets", "available");
  } else {
    section.add("buckets", library.last_error());
    section.advise(fmt::format("shared buffers are not available: {}", library.last_error()));
  }
  examine_mpi(section, own_path);
  add_nccl(section, about);
  return section;
}

}  // namespace rueda::doctor

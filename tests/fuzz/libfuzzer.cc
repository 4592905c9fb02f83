// One parser under libFuzzer: RUEDA_FUZZ_PARSER names it. Without a name it lists all parsers; with
// RUEDA_FUZZ_SEEDS=FOLDER it writes the seeds of the one that is named. tools/fuzz.py does both.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "parsers.h"

namespace {

const rueda::fuzz::Parser* chosen = nullptr;

const rueda::fuzz::Parser* find(const std::string& name) {
  using namespace rueda::fuzz;
  static const std::vector<Parser> all = together({core_parsers(), launch_parsers(), command_parsers()});
  for (const Parser& one : all) {
    if (name.empty()) std::printf("%s\n", one.name.c_str());
    if (one.name == name) return &one;
  }
  return nullptr;
}

void write_seeds(const std::string& folder) {
  for (size_t i = 0; i < chosen->seeds.size(); ++i) {
    std::ofstream file(folder + "/seed" + std::to_string(i), std::ios::binary);
    file << rueda::fuzz::text_of(chosen->seeds[i]);
    if (!file.flush()) std::exit(1);
  }
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  const char* name = std::getenv("RUEDA_FUZZ_PARSER");
  chosen = find(name == nullptr ? "" : name);
  if (chosen == nullptr) std::exit(name == nullptr ? 0 : 1);
  const char* folder = std::getenv("RUEDA_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  write_seeds(folder);
  std::exit(0);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  chosen->take(std::as_bytes(std::span(data, size)));
  return 0;
}

#include "preflight/host_facts.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <type_traits>
#include <utility>

namespace rueda::preflight {
namespace {

// Calls visit(key, field) for every field, so that both directions know the same ones.
template <class Facts, class Visit>
void for_each_field(Facts& facts, Visit&& visit) {
  visit("host", facts.host);
  visit("release", facts.release);
  visit("library_release", facts.library_release);
  visit("library_id", facts.library_id);
  visit("library_path", facts.library_path);
  visit("library_problem", facts.library_problem);
  visit("packages", facts.packages);
  visit("python_problem", facts.python_problem);
  visit("kernel", facts.kernel);
  visit("cores", facts.cores);
  visit("memory_bytes", facts.memory_bytes);
  visit("open_files", facts.open_files);
  visit("locked_bytes", facts.locked_bytes);
  visit("shm_free_bytes", facts.shm_free_bytes);
  visit("has_memfd", facts.has_memfd);
  visit("free_ports", facts.free_ports);
  visit("can_listen", facts.can_listen);
  visit("clock_source", facts.clock_source);
  visit("is_clock_synchronised", facts.is_clock_synchronised);
  visit("interface", facts.interface);
  visit("card_mbit_per_s", facts.card_mbit_per_s);
  visit("mtu", facts.mtu);
  visit("numa_node", facts.numa_node);
  visit("gpus", facts.gpus);
  visit("gpu_driver", facts.gpu_driver);
  visit("nccl", facts.nccl);
}

// False: a number that the field cannot hold.
template <class Field>
bool read_field(const nlohmann::json& value, Field& field) {
  if constexpr (std::is_integral_v<Field> && !std::is_same_v<Field, bool>) {
    const bool fits = value.is_number_unsigned()
                          ? std::in_range<Field>(value.get<uint64_t>())
                          : value.is_number_integer() && std::in_range<Field>(value.get<int64_t>());
    if (!fits) return false;
  }
  value.get_to(field);
  return true;
}

}  // namespace

std::string encode(const HostFacts& facts) {
  nlohmann::ordered_json out;
  for_each_field(facts, [&](const char* key, const auto& field) { out[key] = field; });
  // Values come from the machine, so they may contain any bytes.
  return out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

Result<HostFacts> decode_facts(std::string_view text) {
  const auto read = nlohmann::json::parse(text, nullptr, false);
  const auto fail = [](std::string_view what) {
    return Status(
        Code::kInvalidArgument,
        fmt::format("a host's answer cannot be read ({}); install the same release everywhere", what));
  };
  if (!read.is_object()) return fail("no JSON object");
  HostFacts facts;
  std::string wrong;
  for_each_field(facts, [&](const char* key, auto& field) {
    // The library reports wrong types by exceptions; they end here.
    try {
      if (!read_field(read.at(key), field)) wrong = key;
    } catch (const nlohmann::json::exception&) {
      wrong = key;
    }
  });
  if (!wrong.empty()) return fail(wrong);
  return facts;
}

}  // namespace rueda::preflight

#include "rueda/base/config_texts.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include "rueda/base/gpu_operations.h"
#include "rueda/base/log.h"

namespace rueda {

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front()))) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.remove_suffix(1);
  return text;
}

Result<bool> parse_boolean(std::string_view text) {
  const std::string word = lower(trimmed(text));
  for (const char* yes : {"1", "true", "yes", "on"})
    if (word == yes) return true;
  for (const char* no : {"0", "false", "no", "off"})
    if (word == no) return false;
  return Status(Code::kInvalidArgument,
                "'" + std::string(text) + "' is neither of 1/true/yes/on nor of 0/false/no/off");
}

Status check_timeline_path(std::string_view path) {
  const std::string name = lower(path);
  for (const std::string_view suffix : {".pftrace", ".perfetto-trace"})
    if (name.ends_with(suffix))
      return {Code::kInvalidArgument, "The timeline " + std::string(path) +
                                          " would be Chrome's JSON and not the format that its name says; " +
                                          "call it t.json, and `rueda timeline merge " + std::string(path) +
                                          " t.json` writes Perfetto's."};
  return Status::ok();
}

Status parse_timeline(Config& config, std::string_view text) {
  if (!check_timeline_path(text).is_ok()) return refused("the name of JSON");
  config.timeline = text;
  return Status::ok();
}

Status parse_log_level(Config& config, std::string_view text) {
  const std::string level = lower(text);
  if (std::ranges::find(kLogLevelNames, level) == kLogLevelNames.end())
    return refused("one of the log levels");
  config.log_level = level;
  return Status::ok();
}

Status parse_determinism(Config& config, std::string_view text) {
  const std::string mode = lower(trimmed(text));
  if (mode != "hosts" && mode != "bitwise") return refused("one of the two");
  config.determinism = mode;
  return Status::ok();
}

Status parse_wire(Config& config, std::string_view text) {
  const std::string name = lower(trimmed(text));
  for (int i = 0; i < count_of(Wire()); ++i) {
    if (name != name_of(static_cast<Wire>(i))) continue;
    config.wire = static_cast<Wire>(i);
    return Status::ok();
  }
  return refused("one of the four");
}

Status parse_gpu_operations(Config& config, std::string_view text) {
  const std::string name = lower(trimmed(text));
  if (!is_gpu_operations(name)) return refused("one of the names");
  config.gpu_operations = name;
  return Status::ok();
}

Status parse_cuda_ipc(Config& config, std::string_view text) {
  const std::string mode = lower(trimmed(text));
  if (mode != "auto" && mode != "on" && mode != "off") return refused("one of the three");
  config.cuda_ipc = mode;
  return Status::ok();
}

// As Horovod's variable has it, 1 and 0 as well.
Status parse_tune(Config& config, std::string_view text) {
  const std::string mode = lower(trimmed(text));
  const bool is_on = mode == "on" || mode == "1" || mode == "true" || mode == "yes";
  const bool is_off = mode == "off" || mode == "0" || mode == "false" || mode == "no";
  if (!is_on && !is_off && mode != "auto") return refused("one of the three");
  config.tune = is_on ? "on" : is_off ? "off" : "auto";
  return Status::ok();
}

Status parse_cpu_operations(Config& config, std::string_view text) {
  const std::string name = lower(trimmed(text));
  if (name != "native" && name != "mpi") return refused("one of the two");
  config.cpu_operations = name;
  return Status::ok();
}

Status parse_transports(Config& config, std::string_view text) {
  std::string names;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string name = lower(trimmed(text.substr(0, comma)));
    if (!is_transport_name(name)) return refused("a list of transports");
    names += (names.empty() ? "" : ",") + name;
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  config.transports = names;
  return Status::ok();
}

Status parse_thread_affinity(Config& config, std::string_view text) {
  std::string cores;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto core = number_in<uint16_t>(trimmed(text.substr(begin, end - begin)));
    if (!core || *core >= CPU_SETSIZE) return refused("a list of cores");
    cores += (begin == 0 ? "" : ",") + std::to_string(*core);
    begin = end + 1;
  }
  config.thread_affinity = cores;
  return Status::ok();
}

}  // namespace rueda

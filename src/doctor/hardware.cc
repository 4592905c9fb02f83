#include "doctor/hardware.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/timex.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "doctor/first_line.h"
#include "rueda/store/address.h"
#include "rueda/store/world.h"

namespace rueda::doctor {
namespace {

namespace fs = std::filesystem;

// The number in the file; `otherwise` if there is none.
template <class Number>
Number number_in(const fs::path& path, Number otherwise) {
  const std::string text = first_line(path);
  Number number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::string card_text(const NetworkCard& card) {
  if (!card.is_physical) return fmt::format("virtual, MTU {}", card.mtu);
  const std::string rate = card.mbit_per_s == 0
                               ? "rate unknown"
                               : fmt::format("{:g} Gbit/s", static_cast<double>(card.mbit_per_s) / 1e3);
  const std::string node = card.numa_node < 0 ? "" : fmt::format(", NUMA node {}", card.numa_node);
  return fmt::format("{}, MTU {}, driver {}{}", rate, card.mtu, card.driver.empty() ? "unknown" : card.driver,
                     node);
}

}  // namespace

NetworkCard read_network_card(const std::string& root, const std::string& interface) {
  NetworkCard card;
  if (interface.empty() || interface.find('/') != std::string::npos) return card;
  const fs::path folder = root + "/sys/class/net/" + interface;
  std::error_code error;
  card.is_physical = fs::exists(folder / "device", error);
  card.mtu = number_in(folder / "mtu", 0);
  if (!card.is_physical) return card;
  card.mbit_per_s = std::max<int64_t>(0, number_in<int64_t>(folder / "speed", 0));  // -1: unknown
  card.numa_node = number_in(folder / "device/numa_node", -1);
  card.driver = fs::read_symlink(folder / "device/driver", error).filename().string();
  return card;
}

std::string interface_towards_others(const std::string& setting) {
  const Result<std::string> address = store::choose_address(setting, "");
  if (!address.is_ok()) return "";
  for (const store::LocalAddress& local : store::local_addresses())
    if (local.ip == address.value()) return local.interface;
  return "";
}

std::vector<NumaNode> read_numa_nodes(const std::string& root) {
  std::vector<NumaNode> nodes;
  for (const fs::path& entry : sorted_entries(root + "/sys/devices/system/node")) {
    const std::string name = entry.filename();
    int number = -1;
    if (!name.starts_with("node")) continue;
    const auto [end, error] = std::from_chars(name.data() + 4, name.data() + name.size(), number);
    if (error == std::errc() && end == name.data() + name.size())
      nodes.push_back({.number = number, .cpus = first_line(entry / "cpulist")});
  }
  std::ranges::sort(nodes, {}, &NumaNode::number);
  return nodes;
}

ClockSource read_clock_source(const std::string& root) {
  const fs::path folder = root + "/sys/devices/system/clocksource/clocksource0";
  return {.current = first_line(folder / "current_clocksource"),
          .available = first_line(folder / "available_clocksource")};
}

bool is_clock_synchronised() {
  timex state{};  // modes = 0: only reads
  return adjtimex(&state) != TIME_ERROR && (state.status & STA_UNSYNC) == 0;
}

NvidiaGpus read_nvidia_gpus(const std::string& root) {
  NvidiaGpus gpus;
  for (const fs::path& gpu : sorted_entries(root + "/proc/driver/nvidia/gpus")) {
    std::ifstream file(gpu / "information");
    for (std::string line; std::getline(file, line);) {
      if (!line.starts_with("Model:")) continue;
      const size_t begin = line.find_first_not_of(" \t", 6);
      gpus.models.push_back(begin == std::string::npos ? "unknown" : line.substr(begin));
    }
  }
  // "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 24 …": the first word with a dot.
  const std::string line = first_line(root + "/proc/driver/nvidia/version");
  for (size_t begin = 0; begin < line.size();) {
    const size_t end = std::min(line.find(' ', begin), line.size());
    const std::string word = line.substr(begin, end - begin);
    if (word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos) {
      gpus.driver = word;
      break;
    }
    begin = end + 1;
  }
  return gpus;
}

CudaDriver find_cuda_driver(const std::string& library) {
  void* const handle = dlopen(library.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return {.version = 0, .problem = why != nullptr ? why : library + ": cannot be loaded"};
  }
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(dlsym(handle, "cuDriverGetVersion"));
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0 || version <= 0)
    return {.version = 0, .problem = library + ": does not tell its version"};
  return {.version = version, .problem = ""};
}

std::string cuda_library() {
  const char* const named = getenv("RUEDA_CUDA_LIBRARY");
  return named != nullptr && *named != '\0' ? named : "libcuda.so.1";
}

std::string nccl_text(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000;  // 2.8 and earlier counted otherwise
  const int rest = version < 10000 ? version % 1000 : version % 10000;
  return fmt::format("{}.{}.{}", major, rest / 100, rest % 100);
}

std::string find_nccl() {
  void* library = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) return "";
  using GetVersion = int (*)(int*);
  const auto get_version = reinterpret_cast<GetVersion>(dlsym(library, "ncclGetVersion"));
  int code = 0;
  if (get_version == nullptr || get_version(&code) != 0) return "unknown";
  return nccl_text(code);
}

Section examine_hardware(const std::string& interface_setting) {
  Section section{.title = "hardware", .facts = {}, .problems = {}};
  const std::string interface = interface_towards_others(interface_setting);
  const NetworkCard card = read_network_card("", interface);
  section.add("network card", interface.empty() ? "none found" : interface + ": " + card_text(card));
  const std::vector<NumaNode> nodes = read_numa_nodes("");
  for (const NumaNode& node : nodes)
    section.add(fmt::format("NUMA node {}", node.number), "CPUs " + node.cpus);
  if (nodes.empty()) section.add("NUMA", "not known here");
  const ClockSource clock = read_clock_source("");
  section.add("clock source",
              fmt::format("{} (available: {})", clock.current.empty() ? "unknown" : clock.current,
                          clock.available.empty() ? "unknown" : clock.available));
  const bool is_clock_kept = is_clock_synchronised();
  section.add("clock is kept", is_clock_kept ? "by a time service" : "by no time service");
  if (!is_clock_kept) section.advise(std::string(kNoTimeService));
  const bool is_slow = clock.current == "hpet" || clock.current == "acpi_pm";
  if (is_slow && clock.available.find("tsc") != std::string::npos)
    section.advise(
        fmt::format("the kernel reads the clock from {}, which costs about a microsecond each time; boot "
                    "with clocksource=tsc, which is available here",
                    clock.current));
  const NvidiaGpus gpus = read_nvidia_gpus("");
  section.add("NVIDIA GPUs",
              gpus.models.empty() ? "none" : fmt::format("{}, driver {}", gpus.models.size(), gpus.driver));
  const CudaDriver cuda = find_cuda_driver(cuda_library());
  section.add("CUDA driver", cuda.version == 0 ? "none: " + cuda.problem
                                               : fmt::format("CUDA {}.{}, {}", cuda.version / 1000,
                                                             cuda.version % 1000 / 10, cuda_library()));
  if (cuda.version == 0 && !gpus.models.empty())
    section.advise(fmt::format(
        "the kernel has {} GPUs, but programs cannot use them: {}; install the driver's libcuda, or "
        "start the container with the NVIDIA Container Toolkit",
        gpus.models.size(), cuda.problem));
  return section;
}

}  // namespace rueda::doctor

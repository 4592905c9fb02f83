#include "rueda/control/stalls.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <set>
#include <utility>

#include "rueda/control/mismatch.h"

namespace rueda::control {
namespace {

// As in Horovod, because scripts read the report: it ends with "..." from the sixth name on, whether or
// not another follows.
constexpr size_t kMaxNamesOfRank = 6;
constexpr size_t kMaxListedTensors = 20;
constexpr size_t kMaxRanksNamed = 64;

std::string seconds_text(Nanos duration) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.10g", static_cast<double>(duration) / kSecond);
  return text.data();
}

struct MissingRank {
  std::set<std::string_view> names;
  bool is_fatal = false;
};

std::string rank_line(Rank rank, const MissingRank& missing) {
  std::string line = "\n" + std::to_string(rank) + (missing.is_fatal ? "!" : "") + ": [";
  size_t count = 0;
  for (const std::string_view name : missing.names) {
    if (count == kMaxNamesOfRank) break;
    line += count++ == 0 ? "" : ", ";
    line += name;
  }
  if (missing.names.size() >= kMaxNamesOfRank) line += " ...";
  return line + "]";
}

std::string tensor_lines(std::vector<const StalledTensor*> tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const StalledTensor* a, const StalledTensor* b) {
    return a->age != b->age ? a->age > b->age : a->name < b->name;
  });
  std::string lines = "\nStalled tensors:";
  for (size_t i = 0; i < tensors.size() && i < kMaxListedTensors; ++i) {
    const StalledTensor& tensor = *tensors[i];
    lines += "\n" + tensor.name + " (" + std::string(tensor.operation);
    if (tensor.process_set != 0) lines += ", process set " + std::to_string(tensor.process_set);
    lines += "): waiting " + std::to_string(tensor.age / kSecond) + " s for " + rank_list(tensor.missing);
  }
  if (tensors.size() > kMaxListedTensors)
    lines += "\n… and " + std::to_string(tensors.size() - kMaxListedTensors) + " more";
  return lines;
}

// When the job ends if nothing moves; "" if it does not.
std::string end_text(Nanos oldest, Nanos warning, Nanos shutdown) {
  if (shutdown == 0 || shutdown < warning || oldest >= shutdown) return {};
  const Nanos rest = (shutdown - oldest + kSecond - 1) / kSecond * kSecond;
  return "The job ends in " + seconds_text(rest) + " s, when this wait has lasted for " +
         seconds_text(shutdown) + " s: RUEDA_STALL_SHUTDOWN_TIME_SECONDS sets the limit, and 0 lifts it.";
}

std::string short_text(const std::vector<StalledTensor>& tensors, const std::map<Rank, MissingRank>& ranks) {
  const StalledTensor& oldest = *std::ranges::max_element(tensors, {}, &StalledTensor::age);
  std::vector<Rank> missing;
  for (const auto& [rank, names] : ranks) missing.push_back(rank);
  const std::string subject =
      tensors.size() == 1 ? "One tensor is" : std::to_string(tensors.size()) + " tensors are";
  return subject + " waiting for " + rank_list(missing) + ", the longest (" + oldest.name + ") for " +
         std::to_string(oldest.age / kSecond) + " s. The log of rank 0 lists them.";
}

// " Stalled: rank 1." in the last line, for `rueda run` (launch/last_words.h), which keeps few lines.
std::string stalled_text(const std::map<Rank, MissingRank>& ranks) {
  std::vector<Rank> stalled;
  for (const auto& [rank, missing] : ranks)
    if (missing.is_fatal) stalled.push_back(rank);
  return " Stalled: " + rank_list(stalled) + ".";
}

// tensors: at least one. shutdown: 0 = never.
StallReport stall_report(const std::vector<StalledTensor>& tensors, Nanos warning, Nanos shutdown) {
  std::map<Rank, MissingRank> ranks;
  std::vector<const StalledTensor*> pointers;
  StallReport report;
  for (const StalledTensor& tensor : tensors) {
    pointers.push_back(&tensor);
    const bool is_fatal = shutdown > 0 && shutdown >= warning && tensor.age >= shutdown;
    report.is_fatal |= is_fatal;
    for (const Rank rank : tensor.missing) {
      ranks[rank].names.insert(tensor.name);
      ranks[rank].is_fatal |= is_fatal;
    }
  }
  report.text =
      "One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are "
      "waiting for remainder of ranks for more than " +
      seconds_text(warning) +
      " seconds. This may mean that ranks submit different tensors, or that only some of them submit any, "
      "which will cause deadlock. Make every rank submit the same operations under the same names; a rank "
      "that has run out of data calls join().\nMissing ranks:";
  size_t listed = 0;
  for (const auto& [rank, missing] : ranks) {
    if (listed++ == kMaxRanksNamed) {
      report.text += "\n… and " + std::to_string(ranks.size() - kMaxRanksNamed) + " more ranks";
      break;
    }
    report.text += rank_line(rank, missing);
  }
  report.text += tensor_lines(std::move(pointers));
  report.short_text = short_text(tensors, ranks);
  const Nanos oldest = std::ranges::max_element(tensors, {}, &StalledTensor::age)->age;
  if (const std::string end = end_text(oldest, warning, shutdown); !end.empty()) {
    report.text += "\n" + end;
    report.short_text += " " + end;
  }
  if (report.is_fatal)
    report.text += "\nOne or more rank (marked by \"!\") is stalled for longer than " +
                   seconds_text(shutdown) + " seconds. Will shutdown." + stalled_text(ranks);
  return report;
}

}  // namespace

Nanos StallWatch::next_check(Nanos oldest, Nanos now) const {
  if (options_.is_disabled || oldest == kNobody) return now + std::max(options_.warning, kMillisecond);
  const Nanos next = std::max(oldest, last_check_) + options_.warning;
  // The job may have to end before the next report is due.
  const Nanos end = oldest + options_.shutdown;
  const bool may_end = options_.shutdown > 0 && options_.shutdown >= options_.warning && last_check_ < end;
  return may_end ? std::min(next, end) : next;
}

std::vector<StallReport> StallWatch::check(const std::vector<StalledTensor>& waiting, Nanos now) {
  last_check_ = now;
  const auto is_stalled = [this](const StalledTensor& tensor) { return tensor.age >= options_.warning; };
  if (std::ranges::none_of(waiting, is_stalled)) return {};
  StallReport report = stall_report(waiting, options_.warning, options_.shutdown);
  report.is_news = is_news(waiting, now);
  return {std::move(report)};
}

bool StallWatch::is_news(const std::vector<StalledTensor>& tensors, Nanos now) {
  const auto before = std::exchange(named_, {});
  for (const StalledTensor& tensor : tensors)
    named_.emplace(tensor.process_set, tensor.name, now - tensor.age);
  return !std::ranges::includes(before, named_);
}

}  // namespace rueda::control

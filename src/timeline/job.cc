#include "timeline/job.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

#include "timeline/record_files.h"
#include "timeline/units.h"

namespace rueda::timeline {
namespace {

namespace fs = std::filesystem;

constexpr Nanos kEndsEarly = 2 * kSecond;
constexpr size_t kKeptVerdicts = 4;
constexpr size_t kMaxDepartures = 64;  // different reasons that are kept

// Everything that one file says, by epoch.
struct Scan {
  std::string path;
  std::map<Epoch, RankFile> epochs;
  std::map<Epoch, StepSources> sources;
  Status fault;
  int64_t lost = 0;  // before the first epoch
};

void count(const Call& call, RankFile& file) {
  ++file.calls;
  file.planned_calls += call.is_planned ? 1 : 0;
  file.waits += call.is_waited_for ? 1 : 0;
  const Nanos first = call.submitted != 0 ? call.submitted : call.ordered;
  file.first = file.first == 0 ? first : std::min(file.first, first);
  file.last = std::max(file.last, call.ended);
}

// The records that follow it say the rest; where one does not, nothing has changed.
void add_link(const Span& span, LinkSeries& link) {
  LinkTotal total = link.is_empty() ? LinkTotal() : link.total();
  total.bytes = span.value;
  total.busy = span.end;
  link.add(span.begin, total);
}

void count(const Span& span, RankFile& file) {
  switch (span.kind) {
    case SpanKind::kStep:
    case SpanKind::kInput:
      return;
    case SpanKind::kWait:
      ++file.waits;
      return;
    case SpanKind::kPlanBegins:
      ++file.plans;
      return;
    case SpanKind::kPlanEnds:
      if (file.departures.size() < kMaxDepartures || file.departures.contains(std::string(span.text)))
        ++file.departures[std::string(span.text)];
      return;
    case SpanKind::kClock:
      return file.clock.add({.at = span.begin, .offset = span.value, .round_trip = span.end});
    case SpanKind::kFailure:
      file.failure = span.text;
      return;
    case SpanKind::kStall:
      file.stall = span.text;
      ++file.stalls;
      return;
    case SpanKind::kVerdict:
      ++file.verdict_count;
      file.verdicts.emplace_back(span.begin, span.text);
      if (file.verdicts.size() > kKeptVerdicts) file.verdicts.erase(file.verdicts.begin());
      return;
    case SpanKind::kSent:
    case SpanKind::kReceived:
    case SpanKind::kReady:
    case SpanKind::kCycle:
      return;
    case SpanKind::kLink:
      add_link(span, file.links[span.peer]);
      return;
    case SpanKind::kLinkPauses:
      if (LinkSeries& link = file.links[span.peer]; !link.is_empty()) link.last().pauses = span.value;
      return;
    case SpanKind::kLinkAwaited:
      if (LinkSeries& link = file.links[span.peer]; !link.is_empty()) {
        link.last().awaited_bytes = span.value;
        link.last().awaited = span.end;
      }
      return;
  }
}

// Counts the steps of a rank in which it had calls, and those of them in which it waited.
class WaitCounter {
 public:
  void mark(RankFile& file) {
    if (has_marked_ && calls_ > 0) {
      ++file.steps_with_calls;
      file.steps_with_waits += file.waits > waits_ ? 1 : 0;
    }
    has_marked_ = true;
    calls_ = 0;
    waits_ = file.waits;
  }
  void call() { ++calls_; }

 private:
  bool has_marked_ = false;  // what comes before the first step is no step
  int64_t calls_ = 0, waits_ = 0;
};

Result<Scan> scan(const std::string& path, Names& names) {
  Result<RecordReader> reader = RecordReader::open(path, names);
  if (!reader.is_ok()) return reader.status();
  Scan scan;
  scan.path = path;
  RankFile* file = nullptr;
  Epoch at = 0;
  std::map<Epoch, WaitCounter> waits;
  while (const Record* record = reader.value().next()) {
    if (const auto* epoch = std::get_if<EpochRecord>(record)) {
      const auto [found, is_new] = scan.epochs.try_emplace(at = epoch->epoch);
      file = &found->second;
      if (!is_new) continue;
      file->path = path;
      file->rank = epoch->rank;
      file->size = epoch->size;
      file->job = epoch->job;
      file->pid = epoch->pid;
      file->host = epoch->host;
      file->host_key = epoch->host_key;
      file->command = epoch->command;
      file->began = epoch->began;
      file->began_micros = epoch->began_micros;
    } else if (file != nullptr) {
      if (const auto* call = std::get_if<Call>(record)) {
        count(*call, *file);
        waits[at].call();
        file->losses.note(call->ended, false);
      }
      if (const auto* span = std::get_if<Span>(record)) {
        count(*span, *file);
        if (span->kind == SpanKind::kStep) {
          scan.sources[at].add(span->value, span->begin);
          waits[at].mark(*file);
          file->losses.note(span->begin, true);
        }
      }
      if (const auto* gap = std::get_if<Gap>(record)) file->losses.add(*gap);
    } else if (const auto* gap = std::get_if<Gap>(record)) {
      scan.lost += gap->records;
    }
  }
  for (const auto& [epoch, sources] : scan.sources) scan.epochs[epoch].steps = sources.steps();
  scan.fault = reader.value().fault();
  return scan;
}

// Whether two files can be of one job: in no epoch of both do they name different ones.
bool are_of_one_job(const Scan& a, const Scan& b) {
  return std::ranges::all_of(a.epochs, [&](const auto& each) {
    const auto other = b.epochs.find(each.first);
    return other == b.epochs.end() ||
           (other->second.job == each.second.job && other->second.size == each.second.size);
  });
}

int64_t began_micros(const Scan& scan) {
  int64_t latest = 0;
  for (const auto& [epoch, file] : scan.epochs) latest = std::max(latest, file.began_micros);
  return latest;
}

// A job that had more ranks leaves files beside those of a later one with the same path.
void leave_out_older_jobs(std::vector<Scan>& scans, std::vector<std::string>& remarks) {
  const auto newest = std::ranges::max_element(scans, {}, began_micros);
  if (newest == scans.end() || newest->epochs.empty()) return;
  const std::string its_path = newest->epochs.begin()->second.path;
  std::vector<Scan> kept;
  for (Scan& scan : scans)
    if (are_of_one_job(scan, *newest))
      kept.push_back(scan);
    else
      remarks.push_back(scan.epochs.begin()->second.path + " is of another job than " + its_path +
                        ", which began later; it is left out.");
  scans = std::move(kept);
}

// The epoch that says most about training.
Epoch choose(const std::vector<Scan>& scans) {
  std::map<Epoch, std::pair<int64_t, int64_t>> totals;
  for (const Scan& scan : scans)
    for (const auto& [epoch, file] : scan.epochs) {
      totals[epoch].first += file.steps.marks;
      totals[epoch].second += file.calls;
    }
  const auto most = std::ranges::max_element(totals, {}, [](const auto& each) { return each.second; });
  return most == totals.end() ? 0 : most->first;
}

Status check_ranks(const Job& job) {
  for (size_t i = 1; i < job.ranks.size(); ++i) {
    const RankFile &a = job.ranks[i - 1], &b = job.ranks[i];
    if (a.rank == b.rank)
      return {Code::kInvalidArgument, a.path + " and " + b.path + " are both of rank " +
                                          std::to_string(a.rank) + "; give one of them."};
  }
  return Status::ok();
}

// Ranks of one host share a clock, so one of them is enough to convert the times of all.
void align(Job& job) {
  const bool has_first = !job.ranks.empty() && job.ranks.front().rank == 0;
  const std::string first_host = has_first ? job.ranks.front().host_key : std::string();
  for (RankFile& file : job.ranks) {
    if (has_first && file.host_key == first_host) {
      file.clock = {};
      continue;
    }
    file.clock.settle();
    if (!file.clock.is_empty()) continue;
    const auto other = std::ranges::find_if(job.ranks, [&](const RankFile& each) {
      return each.host_key == file.host_key && !each.clock.is_empty();
    });
    if (other != job.ranks.end()) file.clock = other->clock;
    // Without rank 0, a host that never asked for the time is rank 0's.
    file.is_aligned = !file.clock.is_empty() || !has_first;
    if (file.is_aligned) continue;
    job.remarks.push_back("The clock of host " + file.host + " (rank " + std::to_string(file.rank) +
                          ") is not known, because the job ended too soon: waiting for ranks of other hosts "
                          "is counted as transfer there.");
  }
}

void remark_early_ends(Job& job) {
  Nanos latest = INT64_MIN;
  for (const RankFile& file : job.ranks)
    if (file.is_aligned && file.calls > 0) latest = std::max(latest, file.aligned(file.last));
  for (const RankFile& file : job.ranks) {
    if (!file.is_aligned || file.calls == 0) continue;
    const Nanos early = latest - file.aligned(file.last);
    if (early < kEndsEarly) continue;
    job.ends_early = true;
    job.remarks.push_back(fmt::format(
        "The records of rank {} end {} before those of others: it ended earlier, or its file was cut off.",
        file.rank, time_text(static_cast<double>(early))));
  }
}

// A job that hangs ends no step any more, so what holds it up is not among the shares.
void remark_verdicts(Job& job) {
  for (const RankFile& file : job.ranks) {
    if (const int64_t more = file.verdict_count - std::ssize(file.verdicts); more > 0)
      job.remarks.push_back(fmt::format("Rank {} told of {} before the following ones.", file.rank,
                                        count_text(more, "more fault")));
    for (const auto& [when, text] : file.verdicts)
      job.remarks.push_back(
          fmt::format("While it ran, after {}: {}", time_text(static_cast<double>(when - file.began)), text));
  }
}

void remark(const std::vector<Scan>& scans, Job& job) {
  for (const Scan& each : scans) {
    if (!each.fault.is_ok()) job.remarks.push_back(each.fault.why);
    if (each.epochs.empty() && each.lost == 0 && each.fault.is_ok())
      job.remarks.push_back(each.path +
                            " holds no records: its rank ended before its init was complete, or "
                            "the file was cut.");
    if (each.epochs.empty() && each.lost > 0)
      job.remarks.push_back(
          fmt::format("{} has lost all of its records ({}): the disk was full.", each.path, each.lost));
  }
  std::string pauses;  // every rank has the same
  for (const RankFile& file : job.ranks) {
    if (const std::string lost = losses_text(file.losses.all(), file.began); !lost.empty())
      job.remarks.push_back(
          fmt::format("Rank {} (host {}) lost {}; the file is {}.", file.rank, file.host, lost, file.path));
    if (pauses.empty()) pauses = pauses_text(file.losses.all(), file.began);
  }
  if (!pauses.empty()) job.remarks.push_back(pauses);
  if (std::cmp_less(job.ranks.size(), job.size)) {
    job.remarks.push_back("Files of " + std::to_string(job.ranks.size()) + " of " + std::to_string(job.size) +
                          " ranks were given: for the others, waiting is counted as transfer.");
  }
  remark_early_ends(job);
  remark_verdicts(job);
  if (job.epochs.size() > 1)
    job.remarks.push_back("The files hold " + std::to_string(job.epochs.size()) + " epochs; this is epoch " +
                          std::to_string(job.epoch) + ". --epoch chooses another one.");
  std::set<std::string> failures;
  for (const RankFile& file : job.ranks)
    if (!file.failure.empty() && failures.insert(file.failure).second)
      job.remarks.push_back("The epoch broke: " + file.failure);
  for (const RankFile& file : job.ranks) {
    if (file.stalls == 0) continue;
    job.remarks.push_back("Ranks were stalled, as rank " + std::to_string(file.rank) + " was told " +
                          std::to_string(file.stalls) + (file.stalls == 1 ? " time: " : " times, last: ") +
                          file.stall);
    break;  // every rank is told; rank 0 in the most detail
  }
}

}  // namespace

bool says_when_it_waits(const Job& job) {
  int64_t waits = 0, steps_with_calls = 0, steps_with_waits = 0;
  for (const RankFile& file : job.ranks) {
    waits += file.waits;
    steps_with_calls += file.steps_with_calls;
    steps_with_waits += file.steps_with_waits;
  }
  return steps_with_calls > 0 ? 2 * steps_with_waits >= steps_with_calls : waits > 0;
}

Result<std::vector<std::string>> find_files(const std::vector<std::string>& arguments) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const std::string& argument : arguments) {
    const fs::path path(argument);
    const bool is_folder = fs::is_directory(path, error);
    if (!is_folder && argument.ends_with(kRecordSuffix)) {
      paths.push_back(argument);
      continue;
    }
    const std::vector<std::string> found = record_files_of(argument);
    paths.insert(paths.end(), found.begin(), found.end());
    if (found.empty() && fs::exists(path, error) && !is_folder) {
      paths.push_back(argument);  // it may have been renamed; reading it tells
    } else if (found.empty()) {
      return Status(Code::kInvalidArgument,
                    "There are no record files " + (is_folder ? argument + "/*" : argument + ".rank*") +
                        std::string(kRecordSuffix) + ". Start the job with RUEDA_TIMELINE=PATH to record.");
    }
  }
  std::ranges::sort(paths);
  paths.erase(std::unique(paths.begin(), paths.end()), paths.end());
  if (paths.empty()) return Status(Code::kInvalidArgument, "No file was given.");
  return paths;
}

Result<Job> read_job(const std::vector<std::string>& paths, int64_t epoch, Names& names) {
  Job job;
  std::vector<Scan> scans;
  Status first_failure;
  for (const std::string& path : paths) {
    Result<Scan> read = scan(path, names);
    if (read.is_ok()) {
      scans.push_back(std::move(read).value());
      continue;
    }
    if (first_failure.is_ok()) first_failure = read.status();
    job.remarks.push_back(read.status().why + " It is left out.");
  }
  if (scans.empty()) return first_failure;
  leave_out_older_jobs(scans, job.remarks);
  job.epoch = epoch >= 0 ? static_cast<Epoch>(epoch) : choose(scans);
  std::set<Epoch> all;
  for (const Scan& scan : scans) {
    for (const auto& [number, file] : scan.epochs) all.insert(number);
    if (const auto at = scan.epochs.find(job.epoch); at != scan.epochs.end()) job.ranks.push_back(at->second);
  }
  job.epochs.assign(all.begin(), all.end());
  if (job.ranks.empty())
    return Status(
        Code::kInvalidArgument,
        epoch >= 0
            ? "The files hold nothing of epoch " + std::to_string(epoch) + "."
            : "The files hold no records: the job ended before its init was complete, or they were cut.");
  std::ranges::stable_sort(job.ranks, {}, &RankFile::rank);
  if (Status status = check_ranks(job); !status.is_ok()) return status;
  job.size = job.ranks.front().size;
  align(job);
  remark(scans, job);
  return job;
}

}  // namespace rueda::timeline

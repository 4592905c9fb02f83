// Where the time of a job went: by step, by rank, by transfer, and what to do about it.
#pragma once

#include <array>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "timeline/attribution.h"
#include "timeline/job.h"
#include "timeline/step_samples.h"
#include "timeline/step_sums.h"

namespace rueda::timeline {

using Shares = std::array<double, kShares>;  // nanoseconds

using LinkEnds = std::pair<Rank, Rank>;  // from, to

// The mean over the ranks. Long jobs: over several steps in a row.
struct StepSummary {
  int64_t first = 0, count = 1;  // steps
  double length = 0;             // of one, in nanoseconds
  Shares shares{};               // of one
  // Of the shares, for whom ranks waited, and on which links bytes were (empty without messages): the largest
  // few, most first.
  std::vector<std::pair<Rank, double>> waiting_for = {};
  std::vector<std::pair<LinkEnds, double>> transfer_on = {};
};

// kTransfer: its transfers last longer, so it comes later to the next ones. kRarely: in few steps the others
// waited for it longer than in all others together, and for as long as a step takes. …AtTimes: in more steps,
// but not in most, something took it far longer than usual.
enum class Lateness : uint8_t {
  kNone,
  kCompute,
  kInput,
  kTransfer,
  kRarely,
  kInputAtTimes,
  kComputeAtTimes,
  kUnknown
};

// For how long the average other rank waited for a rank in one step, in nanoseconds.
struct LongWait {
  double time = 0;
  int64_t step = 0;
  bool is_input = false;  // the rank waited for its input for more of the step than it computed
};

struct RankSummary {
  Rank rank = 0;
  std::string host;
  Shares shares{};       // nanoseconds, of an average step
  int64_t last = 0;      // for how many calls the others waited for it
  int64_t critical = 0;  // in how many steps it waited least for others, so that it decided their length
  double cost = 0;       // nanoseconds of a step that the average other rank waited for it
  std::vector<LongWait> worst;  // the longest first; a few
  // Of a step: how much more it computed, waited for input or transferred than the median rank.
  double delay = 0;
  Lateness why = Lateness::kNone;
  LateSteps at_times = {};  // of k…AtTimes
  StepRange late_in = {};   // almost all that others waited for it; none: that was no part of the job
};

// Calls with the same tensors.
struct TransferSummary {
  std::string name;  // of the first tensor
  int32_t tensors = 1;
  std::string what, backend;
  int64_t calls = 0;
  int64_t bytes = 0;    // of one call
  double transfer = 0;  // nanoseconds of one call, from when the last rank came to its end
  double waiting = 0;   // of one call, mean over the ranks: for the last rank
  double bus_gbps = 0;  // 0: not a collective with a known traffic
};

// The fastest connection from a rank to another, and to it, in GB/s while it is busy; 0: not known.
struct LinkSummary {
  Rank rank = 0;
  double out_gbps = 0, in_gbps = 0;
  bool is_slow_out = false, is_slow_in = false;  // less than half of what the median rank does
};

// What passed from one rank to another in messages, from a timeline.
struct LinkTransfer {
  Rank from = 0, to = 0;
  double blocked = 0;        // nanoseconds of an average step for which the average rank waited for its bytes
  double bytes = 0;          // of a step
  double gbps = 0;           // of a message while it is under way
  double measured_gbps = 0;  // of a connection while it is busy, as the network stack counted; 0: not known
};

// A link that was slow for a part of the job.
struct SlowTime {
  SlowLink link;               // its speed: in the slowest part
  double from = 0, until = 0;  // nanoseconds since the job began
};

// Less is the jitter of healthy jobs: two ranks that do the same wait for one another for a part of each
// step.
inline constexpr double kWorthAdvice = 0.03, kWorthAdviceInTurn = 0.05;  // of a step's time

struct Advice {
  double gain = 0;  // the part of a step's time that it would save at most
  std::string text;
};

struct Summary {
  std::string job;           // as `rueda status` names it
  std::string command;       // of the first rank that is known; empty: its file does not say
  int64_t began_micros = 0;  // since 1970; 0: not known
  Epoch epoch = 0;
  Rank size = 1, files = 1;
  bool has_steps = true;    // false: the program marks no steps, so time was cut into windows
  bool knows_waits = true;  // false: the program does not say when it waits, so all calls count as waiting
  int64_t steps = 0;
  double step_length = 0;   // mean, in nanoseconds
  Shares shares{};          // of an average step, mean over the ranks
  Shares critical{};        // the critical path of an average step: the shares of the rank that decided it
  double unattributed = 0;  // the part of the time that no record explains
  double overlap = 0;       // the part of the time of calls under way that was hidden behind computing
  double step_p50 = 0, step_p95 = 0;
  double clock_bound = 0;  // nanoseconds by which the clocks of two hosts may differ; 0: one host
  double calls = 0, planned_calls = 0;  // of one rank, mean over the ranks
  int64_t bytes = 0;                    // the same, of all steps
  double bus_gbps = 0;                  // of all transfers together
  int64_t plans = 0;                    // learned by a rank
  std::map<std::string, int64_t> departures;
  std::vector<StepSummary> by_step;
  std::vector<RankSummary> by_rank;
  LateSteps all_longer;  // steps in which all ranks computed far longer than usual, so that none waited
  std::vector<TransferSummary> by_transfer;  // those that took most time first
  std::vector<LinkTransfer> by_link;         // those for which ranks waited most first; empty: no messages
  double off_links = 0;                      // of shares[kTransfer], what is not in by_link
  std::vector<LinkSummary> links;            // between hosts
  std::vector<SlowLink> slow_pairs;          // of ranks whose other connections are as fast as any
  std::vector<SlowTime> slow_times;          // of links that are not slow all the time
  std::vector<Advice> advice;                // most gain first
  std::vector<std::string> remarks;
};

// What to do, from everything else in the summary. Pure.
std::vector<Advice> advise(const Summary& summary);

std::string as_text(const Summary& summary);
std::string as_json(const Summary& summary);
// A page that needs nothing else.
std::string as_html(const Summary& summary);
// What changed from one job to the other.
std::string diff_text(const Summary& before, const Summary& after);
std::string diff_json(const Summary& before, const Summary& after);

}  // namespace rueda::timeline

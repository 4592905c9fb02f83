#include "rueda/runtime/tuning.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <sstream>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/runtime/backends.h"
#include "rueda/schedule/bucket_bytes.h"

namespace rueda::runtime {
namespace {

// Horovod's columns, in its order, and ours.
constexpr const char* kHeader =
    "hierarchical_allreduce,hierarchical_allgather,torus_allreduce,cache_enabled,cycle_time_ms,"
    "tensor_fusion_threshold,score,seconds,buckets,tried,step_ms,gain_percent,kept\n";

std::string sentence_of(const control::Tuner::News& news) {
  std::ostringstream said;
  said << std::fixed << std::setprecision(1) << news.tried.what << " (" << news.tried.buckets
       << " of a step): ";
  if (!news.gain) {
    said << "given up before its steps could be compared.";
    return said.str();
  }
  const double gain = 100 * *news.gain;
  said << "steps are " << std::abs(gain) << " % " << (gain < 0 ? "longer" : "shorter")
       << (news.is_better ? "; they are kept." : ".");
  return said.str();
}

}  // namespace

control::Tuner::Options tuner_options(const Session& session, int64_t fusion_bytes) {
  const Config& config = session.config;
  const bool may_change_bits = config.tune == "on";
  const bool is_forced = !config.algorithm.empty();  // an algorithm, which may add in an order of its own
  control::Tuner::Options options;
  const bool is_chosen = is_forced || config.plan_bucket_bytes != 0;
  options.is_on = config.tune == "on" || (config.tune != "off" && !is_chosen);
  options.may_change_bits = may_change_bits;
  options.settle = nanos(config.tune_after_s, kSecond);
  options.budget = config.tune_percent / 100;
  if (!options.is_on) return options;
  options.ways.costs = {
      .call_us = bucket_cost(session), .packing_ns = schedule::kPackingNs, .most_bytes = fusion_bytes};
  if (!is_forced)
    for (const schedule::BucketAlgorithm& one : schedule::bucket_algorithms(world_topology(session)))
      options.ways.algorithms.push_back({.number = one.number, .name = one.name, .call_us = one.call_us});
  if (config.chunk_bytes == Config().chunk_bytes) options.ways.chunk_bytes = config.chunk_bytes;
  return options;
}

void TuningReport::open(Nanos now) {
  if (path_.empty() || began_ != 0) return;
  began_ = now;
  table_.open(path_, std::ios::trunc);
  if (!table_)
    RUEDA_LOG(kWarning, "RUEDA_TUNE_LOG: cannot write " + path_ + "; name a file in a folder that exists.");
  table_ << kHeader << std::flush;
  last_row_ = table_.tellp();
}

// Of what Horovod tunes, sizes alone are chosen here: the other columns tell what holds throughout.
// score: bytes per microsecond. Horovod's threshold is in MiB.
void TuningReport::put(const Row& row, int64_t bytes, double seconds) {
  const double mib = static_cast<double>(row.choice.fused_bytes) / (1 << 20);
  const double score = static_cast<double>(bytes) / (1e3 * std::max(row.usual_ms, 1e-6));
  table_ << std::defaultfloat << std::setprecision(6) << (is_hierarchical_ ? 1 : 0) << ",0,0,1,"
         << cycle_time_ms_ << ',' << mib << ',' << score << ',' << std::fixed << std::setprecision(1)
         << seconds << ',' << row.choice.buckets << ",\"" << row.choice.what << "\"," << std::setprecision(3)
         << row.step_ms << ',' << std::setprecision(2);
  if (row.gain_percent) table_ << *row.gain_percent;
  table_ << ',' << (row.is_kept ? 1 : 0) << '\n';
}

void TuningReport::add_rows(const control::Tuner::News& news, Nanos now) {
  if (!table_.is_open()) return;
  const double seconds = static_cast<double>(now - began_) / kSecond;
  const double before_ms = static_cast<double>(news.period) / kMillisecond;
  const double tried_ms = before_ms * (1 - news.gain.value_or(0));
  table_.seekp(last_row_);
  put({.choice = news.tried,
       .usual_ms = tried_ms,
       .step_ms = before_ms,
       .gain_percent = news.gain ? std::optional(100 * *news.gain) : std::nullopt,
       .is_kept = news.is_better},
      news.bytes, seconds);
  last_row_ = table_.tellp();
  const double best_ms = news.is_better ? tried_ms : before_ms;
  control::Tuner::Choice best = news.best;
  best.what.insert(0, "best: ");
  put({.choice = best, .usual_ms = best_ms, .step_ms = best_ms, .gain_percent = 0, .is_kept = true},
      news.bytes, seconds);
  table_.flush();
}

void TuningReport::write(const std::vector<control::Tuner::News>& news, Nanos now) {
  if (news.empty() && (path_.empty() || began_ != 0)) return;
  open(now);
  for (const control::Tuner::News& one : news) {
    RUEDA_LOG(kInfo, sentence_of(one));
    add_rows(one, now);
  }
}

}  // namespace rueda::runtime

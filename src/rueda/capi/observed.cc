#include "rueda/capi/observed.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "rueda/base/clock.h"
#include "rueda/base/config_texts.h"
#include "rueda/base/descriptors.h"
#include "rueda/base/log.h"
#include "rueda/base/process.h"
#include "rueda/base/release.h"
#include "rueda/capi/json_text.h"
#include "rueda/capi/state.h"
#include "rueda/status/endpoint.h"
#include "rueda/status/folder.h"
#include "rueda/status/stacks.h"
#include "rueda/status/textfile.h"

namespace rueda::capi {
namespace {

constexpr size_t kShownInFlight = 64;
constexpr size_t kShownName = 256;
constexpr uint64_t kSpareDescriptors = 64;  // left to the connections between ranks, which matter more
constexpr Nanos kWatchedFor = 50 * kMillisecond;
constexpr size_t kLoggedBytes = 8 << 10;  // of stacks, the main thread's first

struct Shown {
  std::mutex mutex;
  std::unique_ptr<status::Endpoint> endpoint;
  std::function<void()> tick;  // of the endpoint; empty: none
};
// Never freed, like the state of capi.
Shown& shown() {
  static auto* const instance = new Shown;
  return *instance;
}

double seconds(Nanos duration) { return static_cast<double>(duration) / static_cast<double>(kSecond); }

int64_t resident_bytes() {
  long long all = 0, resident = 0;
  const int read = std::sscanf(read_proc("/proc/self/statm").c_str(), "%lld %lld", &all, &resident);
  return read == 2 ? resident * sysconf(_SC_PAGESIZE) : 0;
}

// The same on all ranks of a job, and different for another job.
std::string job_of(const runtime::Session& session) {
  const runtime::PeerInfo& first = session.all->front();
  const size_t hash = std::hash<std::string>()(first.host_key + "|" + std::to_string(first.pid));
  std::array<char, 16> text{};
  std::snprintf(text.data(), text.size(), "%08x", static_cast<unsigned>(hash & 0xFFFFFFFF));
  return text.data();
}

bool has_plan(const runtime::EngineCounters& counters) {
  return counters.plans.load() > counters.departures.load();
}

void add_steps(nlohmann::ordered_json& out, Nanos now) {
  const status::Meters::Recent recent = meters()->recent_steps();
  nlohmann::ordered_json& steps = out["steps"] = {{"count", meters()->steps.load()}};
  if (recent.last != 0) steps["last_s_ago"] = seconds(now - recent.last);
  // The step under way counts once it takes longer than the earlier ones did on average.
  if (recent.steps > 0 && recent.last > recent.began) {
    const double mean = seconds(recent.last - recent.began) / static_cast<double>(recent.steps);
    steps["per_s"] = 1.0 / std::max(mean, seconds(now - recent.last));
  }
}

void add_in_flight(nlohmann::ordered_json& out, runtime::Engine& engine, Nanos now) {
  const auto [oldest, count] = engine.operations().oldest(kShownInFlight);
  out["in_flight_count"] = count;
  nlohmann::ordered_json& list = out["in_flight"] = nlohmann::ordered_json::array();
  for (const runtime::InFlight& one : oldest) {
    nlohmann::ordered_json shown_one = {{"name", one.name.substr(0, kShownName)},
                                        {"what", lower(one.what)},
                                        {"process_set", one.process_set},
                                        {"bytes", one.bytes},
                                        {"age_s", seconds(now - one.submitted)}};
    const auto group = one.process_set == 0 ? nullptr : engine.groups().find(one.process_set);
    if (group) shown_one["members"] = group->members;
    list.push_back(std::move(shown_one));
  }
}

// The ranks of each other host: where somebody who misses them can ask.
void add_elsewhere(nlohmann::ordered_json& out, const runtime::Session& session) {
  const std::vector<runtime::PeerInfo>& all = *session.all;
  std::map<std::string_view, nlohmann::ordered_json> hosts;  // by key
  for (Rank rank = 0; std::cmp_less(rank, all.size()); ++rank) {
    const runtime::PeerInfo& info = all[static_cast<size_t>(rank)];
    if (runtime::are_on_one_host(all, rank, session.me)) continue;
    nlohmann::ordered_json& host = hosts[info.host_key];
    host["host"] = info.host;
    host["ranks"].push_back(rank);
  }
  nlohmann::ordered_json& list = out["elsewhere"] = nlohmann::ordered_json::array();
  for (auto& [key, host] : hosts) list.push_back(std::move(host));
}

// How many cores this process uses at the moment.
double cores_in_use() {
  const Nanos began = monotonic_now(), before = process_use().cpu;
  std::this_thread::sleep_for(std::chrono::nanoseconds(kWatchedFor));
  return static_cast<double>(process_use().cpu - before) / static_cast<double>(monotonic_now() - began);
}

// What a process does that is in no operation.
void add_use(nlohmann::ordered_json& out, const runtime::Engine& engine) {
  const Nanos since = engine.input_since();
  if (since != 0) out["input_for_s"] = seconds(std::max<Nanos>(monotonic_now() - since, 1));
  out["cores"] = cores_in_use();
}

// An init that waits for other ranks.
void add_starting(nlohmann::ordered_json& out, Nanos now) {
  const std::optional<runtime::InitWait::View> view = init_wait().view();
  if (!view) return;
  out["rank"] = view->rank;
  out["size"] = view->size;
  out["starting"] = {
      {"met_at", view->met_at}, {"for_s", seconds(now - view->since)}, {"missing", view->missing}};
}

// Rank 0 knows for whom the others wait.
void add_stragglers(nlohmann::ordered_json& out, const runtime::Engine& engine) {
  if (engine.session().me != 0) return;
  nlohmann::ordered_json& list = out["stragglers"] = nlohmann::ordered_json::array();
  for (const control::StragglerDetector::Straggler& one : engine.stragglers())
    list.push_back({{"rank", one.rank},
                    {"host", (*engine.session().all)[static_cast<size_t>(one.rank)].host},
                    {"share", one.share},
                    {"window_s", seconds(one.window)}});
}

nlohmann::ordered_json snapshot(runtime::Engine* engine) {
  nlohmann::ordered_json out;
  const Nanos now = monotonic_now();
  out["release"] = kRelease;
  out["pid"] = getpid();
  out["is_initialized"] = engine != nullptr;
  out["resident_bytes"] = resident_bytes();
  add_steps(out, now);
  if (engine == nullptr) {
    add_starting(out, now);
    return out;
  }
  const runtime::Session& session = engine->session();
  out["job"] = job_of(session);
  out["rank"] = session.me;
  out["size"] = session.size();
  out["local_rank"] = session.place.local_rank;
  out["host"] = (*session.all)[static_cast<size_t>(session.me)].host;
  out["epoch"] = session.epoch;
  out["launcher"] = session.launcher;
  if (session.view > 0) {
    out["view"] = session.view;
    out["process"] = elastic_rank().uid();
  }
  const Status health = engine->health();
  if (!health.is_ok()) out["failure"] = health.why;
  const runtime::EngineCounters& counters = engine->counters();
  out["plan"] = {{"is_active", has_plan(counters)},
                 {"begun", counters.plans.load()},
                 {"left", counters.departures.load()},
                 {"planned_batches", counters.planned_batches.load()},
                 {"batches", counters.batches.load()}};
  out["bytes"] = counters.bytes.load();
  out["link_bytes_per_s"] = counters.meters->link_bytes_per_s.load();
  out["algorithm"] = counters.algorithm.load();
  out["wire"] = name_of(session.config.wire);
  out["residual_bytes"] = counters.residual_bytes.load();
  add_stragglers(out, *engine);
  add_in_flight(out, *engine, now);
  add_elsewhere(out, session);
  return out;
}

std::string answer(const std::string& request) {
  const std::shared_ptr<runtime::Engine> now = engine();
  if (request == "status") {
    nlohmann::ordered_json out = snapshot(now.get());
    if (now && out["in_flight_count"] == 0) add_use(out, *now);
    return text_of(out);
  }
  if (request == "stacks") {
    const status::Stacks stacks =
        status::capture_stacks(Deadline::after(status::kCaptureTime), status::Caller::kLeftOut);
    return R"({"process": )" + snapshot_json(now.get()) + R"(, "stacks": )" + status::stacks_json(stacks) +
           "}";
  }
  if (request == "record") {
    const std::string record = timeline().recorder().ring();
    return record.empty() ? "it keeps no flight record (RUEDA_FLIGHT_RECORD_BYTES=0)" : record;
  }
  if (request == "metrics")
    return status::prometheus_text(current_metrics(now.get()), metric_labels(now.get()));
  return {};
}

}  // namespace

const std::shared_ptr<status::Meters>& meters() {
  static const auto* const instance = new std::shared_ptr<status::Meters>(std::make_shared<status::Meters>());
  return *instance;
}

std::string snapshot_json(runtime::Engine* engine) { return text_of(snapshot(engine)); }

std::vector<status::Family> current_metrics(runtime::Engine* engine) {
  status::Gauges gauges{.resident_bytes = resident_bytes(), .is_initialized = engine != nullptr};
  if (engine != nullptr) {
    gauges.in_flight = static_cast<int64_t>(engine->operations().oldest(0).second);
    gauges.is_healthy = engine->health().is_ok();
    gauges.has_plan = has_plan(engine->counters());
    gauges.size = engine->session().size();
  }
  return status::families_of(*meters(), gauges);
}

status::Labels metric_labels(const runtime::Engine* engine) {
  if (engine == nullptr) return {};
  const runtime::Session& session = engine->session();
  return {{"rank", std::to_string(session.me)},
          {"job", job_of(session)},
          {"host", (*session.all)[static_cast<size_t>(session.me)].host}};
}

void start_endpoint(const Config& config) {
  Shown& s = shown();
  const std::lock_guard lock(s.mutex);
  if (s.endpoint) return;
  const std::string& file = config.metrics_textfile;
  std::function<void()> tick;
  if (!file.empty()) {
    tick = [file] {
      const std::shared_ptr<runtime::Engine> now = engine();
      if (now)
        status::write_textfile(file, now->session().me,
                               status::prometheus_text(current_metrics(now.get()), metric_labels(now.get())));
    };
  }
  if (!config.status && !tick) return;
  s.tick = tick;
  if (free_descriptors() < kSpareDescriptors) {
    RUEDA_LOG(kInfo, "`rueda status` will not find this process: it may open too few files (ulimit -n).");
    return;
  }
  auto started = status::Endpoint::start(config.status ? status::folder_path() : "", answer, std::move(tick));
  if (started.is_ok())
    s.endpoint = std::move(started).value();
  else
    RUEDA_LOG(kInfo, "`rueda status` will not find this process: " + started.status().why);
}

void log_stacks() {
  Shown& s = shown();
  const std::lock_guard lock(s.mutex);
  if (!s.endpoint) return;
  s.endpoint->call_soon([] {
    const status::Stacks stacks =
        status::capture_stacks(Deadline::after(status::kCaptureTime), status::Caller::kLeftOut);
    RUEDA_LOG(kWarning, "Other ranks wait for this one, which is here (innermost first):\n" +
                            status::stacks_text(stacks, kLoggedBytes));
  });
}

void stop_endpoint() {
  Shown& s = shown();
  std::unique_ptr<status::Endpoint> leaving;
  std::function<void()> tick;
  {
    const std::lock_guard lock(s.mutex);
    leaving = std::move(s.endpoint);
    tick = std::exchange(s.tick, {});
  }
  leaving.reset();
  if (tick) tick();  // what was counted in the last second
}

}  // namespace rueda::capi

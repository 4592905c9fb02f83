#include "observe/job_view.h"

#include <algorithm>
#include <utility>

namespace rueda::observe {
namespace {

void add_absent(JobView& view, const std::string& host, std::vector<Rank> ranks, const std::string& why) {
  const auto same = std::ranges::find_if(
      view.absent, [&](const Absent& one) { return one.host == host && one.why == why; });
  if (same != view.absent.end())
    same->ranks.insert(same->ranks.end(), ranks.begin(), ranks.end());
  else
    view.absent.push_back(
        {.job = {}, .launcher = view.launcher, .host = host, .ranks = std::move(ranks), .why = why});
}

void add_process(JobView& view, const std::string& host, const status::ProcessAnswer& answer) {
  if (!answer.missing.empty()) return add_absent(view, host, {answer.rank}, answer.missing);
  Result<Process> process = parse_process(answer.text);
  if (!process.is_ok()) return add_absent(view, host, {answer.rank}, process.status().why);
  process.value().reached_at = host;
  process.value().pid = answer.pid;
  if (process.value().host.empty()) process.value().host = host;
  view.processes.push_back(std::move(process).value());
}

}  // namespace

JobView view_of(const status::JobAnswer& answer) {
  JobView view{.launcher = answer.launcher, .processes = {}, .absent = {}};
  for (const status::HostAnswer& host : answer.hosts) {
    if (!host.missing.empty()) add_absent(view, host.host, host.ranks, host.missing);
    for (const status::ProcessAnswer& one : host.processes) add_process(view, host.host, one);
  }
  // All ranks of a launcher are of one job, which those that answer know.
  const auto knows =
      std::ranges::find_if(view.processes, [](const Process& one) { return !one.job.empty(); });
  if (knows != view.processes.end())
    for (Absent& absent : view.absent) absent.job = knows->job;
  return view;
}

bool is_same(const Process& one, const Process& other) {
  return one.own_pid == other.own_pid && one.job == other.job && one.rank == other.rank && !one.job.empty();
}

}  // namespace rueda::observe

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "cli/asking.h"
#include "cli/commands.h"
#include "cli/parse_error.h"
#include "observe/gather.h"
#include "rueda/base/numbers.h"
#include "timeline/job.h"
#include "timeline/make_workload.h"
#include "timeline/output_file.h"
#include "timeline/record_files.h"
#include "timeline/summarize.h"
#include "timeline/trace_writer.h"
#include "timeline/units.h"

namespace rueda::cli {
namespace {

constexpr const char* kTimelineHelp = R"(rueda timeline: what a job did, from the records of its ranks

  rueda timeline summary FILE...     where the time of each step went, and what to do about it
  rueda timeline diff BEFORE AFTER   what changed between two jobs
  rueda timeline merge OUT FILE...   one trace for https://ui.perfetto.dev; OUT.json: Chrome's format
  rueda timeline workload FILE...    what a step computes and exchanges, for rueda bench replay --model
  rueda timeline record OUT [JOB]    the last minute of a running job, from all its ranks, as OUT.rank0.rec, …

FILE is a record file, a folder of record files, or the timeline beside which they lie: a job that ran with
RUEDA_TIMELINE=t.json has t.json.rank0.rec, t.json.rank1.rec and so on.
)";

int fail(const Status& status) {
  fmt::print(stderr, "rueda timeline: {}\n", status.why);
  return 1;
}

Result<timeline::Job> read(const std::vector<std::string>& arguments, int64_t epoch, timeline::Names& names) {
  const Result<std::vector<std::string>> paths = timeline::find_files(arguments);
  if (!paths.is_ok()) return paths.status();
  return timeline::read_job(paths.value(), epoch, names);
}

Result<timeline::Summary> summarize(const std::vector<std::string>& arguments, int64_t epoch) {
  timeline::Names names;
  const Result<timeline::Job> job = read(arguments, epoch, names);
  if (!job.is_ok()) return job.status();
  return timeline::summarize(job.value(), names);
}

int summary_command(const std::vector<std::string>& files, int64_t epoch, bool is_json,
                    const std::string& html) {
  const Result<timeline::Summary> summary = summarize(files, epoch);
  if (!summary.is_ok()) return fail(summary.status());
  if (!html.empty()) {
    if (Status status = timeline::write_file(html, timeline::as_html(summary.value())); !status.is_ok())
      return fail(status);
  }
  put(is_json ? timeline::as_json(summary.value()) : timeline::as_text(summary.value()));
  return 0;
}

// A job, or one of its epochs.
struct Compared {
  std::string file;
  int64_t epoch = -1;
};
int diff_command(const Compared& before, const Compared& after, bool is_json) {
  const Result<timeline::Summary> a = summarize({before.file}, before.epoch);
  if (!a.is_ok()) return fail(a.status());
  const Result<timeline::Summary> b = summarize({after.file}, after.epoch);
  if (!b.is_ok()) return fail(b.status());
  put((is_json ? timeline::diff_json : timeline::diff_text)(a.value(), b.value()));
  return 0;
}

int merge_command(const std::string& out, const std::vector<std::string>& files) {
  const Result<std::vector<std::string>> paths = timeline::find_files(files);
  if (!paths.is_ok()) return fail(paths.status());
  std::vector<std::string> remarks;
  const Status merged = timeline::merge(out, paths.value(), remarks);
  if (!merged.is_ok()) return fail(merged);
  tell("timeline", remarks);
  fmt::print("{} is written; open it in https://ui.perfetto.dev\n", out);
  return 0;
}

struct Workload {
  std::vector<std::string> files;
  int64_t epoch = -1;
  std::string out;   // "": print it
  std::string name;  // "": that of the file
};

int workload_command(const Workload& options) {
  if (!options.out.empty() && !options.out.ends_with(".json"))
    return fail({Code::kInvalidArgument, options.out +
                                             " does not end with .json, by which rueda bench knows a "
                                             "model's file; name it " +
                                             options.out + ".json."});
  timeline::Names names;
  const Result<timeline::Job> job = read(options.files, options.epoch, names);
  if (!job.is_ok()) return fail(job.status());
  std::string name = options.name;
  if (name.empty())
    name = std::filesystem::path(options.out.empty() ? "workload" : options.out).stem().string();
  const Result<timeline::MadeWorkload> made = timeline::make_workload(job.value(), name, names);
  if (!made.is_ok()) return fail(made.status());
  tell("timeline", made.value().remarks);
  const workload::Model& model = made.value().model;
  const std::string text = workload::text_of(model);
  if (options.out.empty()) {
    put(text);
    return 0;
  }
  if (Status status = timeline::write_file(options.out, text); !status.is_ok()) return fail(status);
  put(fmt::format("{} is written: {} in {}, {} of computing; `rueda bench replay --model {}` replays it\n",
                  options.out, timeline::count_text(std::ssize(model.parameters), "tensor"),
                  timeline::size_text(model.bytes()), timeline::time_text(model.compute_ms * 1e6),
                  options.out));
  return 0;
}

// The jobs of which ranks were found.
std::set<std::string> jobs_of(const observe::Found& found) {
  std::set<std::string> jobs;
  for (const observe::Process& one : found.processes)
    if (one.rank >= 0) jobs.insert(one.job);
  return jobs;
}

int record_command(const std::string& out, const std::string& target, double timeout_s) {
  const int timeout_ms = milliseconds(timeout_s);
  const Result<observe::Found> found =
      observe::find_processes(target, std::min(timeout_ms, observe::kStatusTime_ms));
  if (!found.is_ok()) return fail(found.status());
  const std::set<std::string> jobs = jobs_of(found.value());
  if (jobs.empty())
    return fail({Code::kUnavailable, "no rank has ended its init yet, so there is nothing to record."});
  if (jobs.size() > 1)
    return fail({Code::kInvalidArgument,
                 fmt::format("{} jobs are running; name one: {}.", jobs.size(), fmt::join(jobs, ", "))});
  std::vector<std::string> remarks = remarks_of(found.value());
  int64_t ranks = 0;
  const auto take = [&](Rank rank, const std::string& sent) {
    const Result<std::string> path = timeline::write_record(out, rank, sent);
    if (path.is_ok())
      ++ranks;
    else
      remarks.push_back(path.status().why);
  };
  observe::ask_for_records(found.value(), timeout_ms, take, remarks);
  tell("timeline", remarks);
  if (ranks == 0) return fail({Code::kUnavailable, "nothing was recorded."});
  put(fmt::format("{}.rank*.rec is written, of {}; `rueda timeline summary {}` says where the time went\n",
                  out, timeline::count_text(ranks, "rank"), out));
  return 0;
}

std::string is_epoch(const std::string& text) {
  return number_of<int64_t>(text).value_or(-1) >= 0 ? ""
                                                    : text + " is not the number of an epoch; the first is 0";
}

CLI::App* add_workload(CLI::App& app, Workload& options) {
  CLI::App* const made = app.add_subcommand("workload", "what a step computes and exchanges");
  made->add_option("FILE", options.files, "as for summary; the timeline of some 30 steps")->required();
  made->add_option("-o,--output", options.out, "the file to write, .json; without it, print the workload");
  made->add_option("--name", options.name, "of the workload (that of the file)");
  made->add_option("--epoch", options.epoch, "which init of the job, if it had several")->check(is_epoch);
  return made;
}

}  // namespace

int timeline_command(const Arguments& arguments) {
  if (arguments.empty() || arguments.front() == "--help" || arguments.front() == "-h") {
    fmt::print(arguments.empty() ? stderr : stdout, "{}", kTimelineHelp);
    return arguments.empty() ? kUsageError : 0;
  }
  CLI::App app(kTimelineHelp, "rueda timeline");
  app.require_subcommand(1);
  std::vector<std::string> files;
  std::string html, out;
  Compared before, after;
  int64_t epoch = -1;
  bool is_json = false;
  CLI::App* const summary = app.add_subcommand("summary", "where the time of each step went");
  summary->add_option("FILE", files, "record files, a folder of them, or the timeline beside them")
      ->required();
  summary->add_option("--epoch", epoch, "which init of the job, if it had several")->check(is_epoch);
  summary->add_flag("--json", is_json, "print JSON, with every step");
  summary->add_option("--html", html, "also write a page to this file");
  CLI::App* const diff = app.add_subcommand("diff", "what changed between two jobs");
  diff->add_option("BEFORE", before.file, "of the first job")->required();
  diff->add_option("AFTER", after.file, "of the second job, or again of the first")->required();
  diff->add_option("--epoch-before", before.epoch, "which init of the first job")->check(is_epoch);
  diff->add_option("--epoch-after", after.epoch, "which init of the second job")->check(is_epoch);
  diff->add_flag("--json", is_json, "print JSON");
  CLI::App* const merged = app.add_subcommand("merge", "one trace of all ranks");
  merged->add_option("OUT", out, "the file to write: .json for Chrome's format, else Perfetto's")->required();
  merged->add_option("FILE", files, "as for summary")->required();
  Workload workload;
  CLI::App* const made = add_workload(app, workload);
  std::string target;
  double timeout_s = observe::kStacksTime_ms / 1e3;
  CLI::App* const recorded = app.add_subcommand("record", "the last minute of a running job");
  recorded->add_option("OUT", out, "where the records lie then: OUT.rank0.rec, OUT.rank1.rec, …")->required();
  recorded->add_option("JOB", target, fmt::format("{}; needed if several run", kJobHelp));
  add_timeout(*recorded, timeout_s);
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(std::move(reversed));
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "rueda timeline: {}\n", sentence_of(error, app, "rueda timeline"));
    return kUsageError;
  }
  if (made->parsed()) return workload_command(workload);
  if (recorded->parsed()) return record_command(out, target, timeout_s);
  if (summary->parsed()) return summary_command(files, epoch, is_json, html);
  return diff->parsed() ? diff_command(before, after, is_json) : merge_command(out, files);
}

}  // namespace rueda::cli

// An elastic job as its launcher sees it: processes come and go, and views follow one another. Decides with
// membership::Proposer and Slots, and performs what follows through the functions that it is given.
//
// The launcher numbers the processes as they are started, and they keep their numbers: those of the first
// view have the numbers of their ranks. Messages of agents, logs and prefixes use this number.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "launch/agent_messages.h"
#include "launch/common_commit.h"
#include "launch/elastic_hosts.h"
#include "launch/elastic_processes.h"
#include "launch/ending.h"
#include "launch/environment.h"
#include "launch/job_options.h"
#include "launch/ready_inbox.h"
#include "launch/slots.h"
#include "rueda/membership/proposer.h"
#include "rueda/membership/register.h"
#include "rueda/status/job_news.h"

namespace rueda::launch {

// One thread, but for inbox().
class ElasticJob {
 public:
  struct Effects {
    // Starts one more process, whose number is the next one, on this host.
    std::function<void(const std::string& host, const Variables& variables)> start;
    std::function<void(int number)> end;                                        // SIGKILL
    std::function<void(int number, const status::ViewChange&)> change;          // onto its board
    std::function<void(const std::string& key, const std::string& value)> put;  // into the store
    std::function<void(const std::string& sentence)> say;
    // Whether processes can start on this host now. If not, its agent is started, and may answer later.
    std::function<bool(const std::string& host)> reach;
  };
  ElasticJob(const ElasticOptions& options, int size, Effects effects);

  // The processes of the first view and their hosts. Its variables belong to those of each process.
  void begin(const std::vector<HostSlots>& hosts, std::span<const Placement> placements, Nanos now);
  [[nodiscard]] Variables variables_of(int number) const;
  // The ranks are started. Fails if the first view cannot be decided.
  Status open(std::unique_ptr<membership::Register> views, Nanos now);

  void on_host_lost(const std::string& host) { slots_.lose(host); }
  // The process was told by SIGTERM to go: it leaves at the next commit.
  void on_leaving(int number);
  // The same of all processes of a host. Returns false if no other host is left.
  bool on_host_leaving(const std::string& host) { return hosts_.on_leaving(host); }
  void on_joined(const std::string& host, int slots) { hosts_.on_joined(host, slots); }
  [[nodiscard]] bool is_leaving(const std::string& host) const { return hosts_.is_leaving(host); }
  // Whether it has left: its agent has nothing more to do.
  [[nodiscard]] bool has_left(const std::string& host) const;
  void on_ended(const Ending& ending, Nanos now);
  void on_board(const BoardReport& report);
  // Nothing is heard from the agent of this host, or it is heard again.
  void on_silent(const std::string& host, bool is_silent);
  // The agent of this host says which of its processes are stopped; those that are in a debugger are left.
  void on_held(const std::string& host, const status::JobNews& news, Nanos now);
  // Does what is due. Afterwards is_over() may have changed.
  void tick(Nanos now);
  [[nodiscard]] Nanos next(Nanos now) const;  // when tick() has something to do by time; 0: never
  void watch(PollSet& set);
  [[nodiscard]] ReadyInbox& inbox() { return inbox_; }

  // Its processes have the numbers of their ranks.
  [[nodiscard]] bool is_in_first_view() const { return proposer_.view().number <= 1; }
  [[nodiscard]] int64_t view() const { return proposer_.view().number; }
  // In the last view; -1: this process is no member.
  [[nodiscard]] Rank rank_of(int number) const { return proposer_.view().rank_of(processes_.at(number).uid); }
  // Every member of the last view has ended, or no view can follow.
  [[nodiscard]] bool is_over() const { return is_over_; }
  [[nodiscard]] const std::string& verdict() const { return verdict_; }  // empty: the ranks decide
  // Of these endings, those that decide how the job has ended: of the members of the last view.
  [[nodiscard]] std::vector<Ending> deciding(const std::vector<Ending>& endings) const;

 private:
  [[nodiscard]] bool is_about_to_end() const;
  void end(int number, const std::string& why);
  void hear(Nanos now);
  void refuse(Nanos now);
  void form_view(Nanos now);
  void tell_awaited();
  void tell_without_commit(Nanos now);
  void install(const membership::View& view);
  void tell_ended(const Ending& ending);
  void tell_early_ends();
  void fill_slots(Nanos now);
  void evict_stopped(Nanos now);
  void let_go();
  void change_members();
  void tell(const CommonCommit::Orders& orders);
  void judge(Nanos now);

  ElasticOptions options_;
  Effects effects_;
  membership::Proposer proposer_;
  std::unique_ptr<membership::Register> views_;
  CommonCommit common_commit_;
  Slots slots_;
  ReadyInbox inbox_;
  ElasticHosts hosts_;
  ElasticProcesses processes_;
  std::set<membership::Uid> told_;  // that they are excluded, and why
  std::vector<Ending> ended_well_;  // members of this view; the others may go on
  std::string verdict_, awaited_;
  Nanos asked_since_ = 0;  // the members are asked to come to a common commit
  bool is_told_without_commit_ = false;
  bool is_ended_told_ = false;  // of this view
  bool is_over_ = false;
};

}  // namespace rueda::launch

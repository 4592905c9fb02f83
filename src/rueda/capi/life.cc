#include "rueda/capi/life.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/base/config_table.h"
#include "rueda/base/log.h"
#include "rueda/base/setting_names.h"
#include "rueda/capi/forks.h"
#include "rueda/capi/metrics_port.h"
#include "rueda/capi/observed.h"
#include "rueda/capi/state.h"
#include "rueda/status/stop_file.h"

namespace rueda::capi {
namespace {

struct Life {
  std::mutex mutex;  // one init or shutdown at a time
  bool has_hooks = false;
  bool has_mpi_hook = false;
  int64_t next_handle = 1;
  int64_t next_prepared = 1;
  bool has_had_epoch = false;
  bool has_ended_well = false;  // every rank left the last epoch by an orderly shutdown
};
// Never freed, like the state of capi.
Life& this_life() {
  static auto* const instance = new Life;
  return *instance;
}

thread_local bool t_is_in_init = false;  // handlers of signals may run in the middle of it

// The store is kept until here, because a process may join again, and after a failure the other ranks must
// still read the cause in it.
void at_exit() {
  shutdown();
  if (is_forked_child()) return;
  Life& life = this_life();
  const std::lock_guard lock(life.mutex);
  if (life.has_ended_well) store::end_file_run(rendezvous().rendezvous().lease);
}

// Registered once MPI is initialised, so that it runs before MPI's own clean-up.
void finalize_mpi() {
  shutdown();
  if (is_forked_child()) return;
  Life& life = this_life();
  const std::lock_guard lock(life.mutex);
  // After a failure other ranks may not come, and MPI_Finalize would wait for them.
  if (life.has_ended_well && rendezvous().mpi()) rendezvous().mpi()->finish();
}

std::unique_ptr<Inherited> what_children_learn() {
  const std::shared_ptr<runtime::Engine> running = engine();
  if (!running) return nullptr;
  auto known = std::make_unique<Inherited>();
  known->topology = topology_of(*running);
  for (const int32_t id : running->groups().ids())
    if (const auto group = running->groups().find(id)) known->sets.emplace(id, group->members);
  known->description = describe_to_children(*running);
  return known;
}

// `rueda run` has said it before it started the ranks; other launchers know nothing of our settings.
void warn_of_misspelt_settings(const store::GetEnv& get_env) {
  if (store::is_below_rueda_run(get_env)) return;
  std::vector<std::pair<std::string, std::string>> variables;
  for (const char* const* entry = environ; *entry != nullptr; ++entry)
    if (const std::string_view text(*entry); text.starts_with("RUEDA_")) {
      const size_t equals = std::min(text.find('='), text.size() - 1);
      variables.emplace_back(text.substr(0, equals), text.substr(equals + 1));
    }
  for (const std::string& sentence : misspelt_settings(variables)) RUEDA_LOG(kWarning, sentence);
}

const char* process_variable(const char* name) { return std::getenv(name); }

// Under the lock of this_life().
Status join_next_view(const runtime::JoinRequest& request) {
  const Result<store::World> world = store::detect_world(process_variable, store::read_ancestry());
  if (!world.is_ok()) return world.status();
  const Result<Config> config = parse_config(process_variable);
  if (!config.is_ok()) return config.status();
  t_is_in_init = true;
  const Status joined = elastic_rank().join(rendezvous(), world.value(), config.value().interface, request);
  t_is_in_init = false;
  return joined;
}

// The same of the processes that start an elastic job without a launcher.
Status begin_first_view(const store::Interrupted& is_interrupted) {
  const Result<store::World> world = store::detect_world(process_variable, store::read_ancestry());
  if (!world.is_ok()) return world.status();
  const Result<Config> config = parse_config(process_variable);
  if (!config.is_ok()) return config.status();
  const Deadline deadline = Deadline::after(nanos(config.value().start_timeout_s, kSecond));
  t_is_in_init = true;
  const Status begun =
      elastic_rank().begin(world.value(), config.value().interface, {deadline, is_interrupted});
  t_is_in_init = false;
  return begun;
}

// An init in which a rank of the first view was lost may succeed in the next one.
bool goes_on_after(const Status& failed) {
  return elastic_rank().is_elastic() && failed.code == Code::kUnavailable;
}

Status begin_epoch(runtime::InitOptions options);

// Under the lock of this_life(). Programs know nothing of views before their first epoch, so it is found for
// them. Views in which nobody has gone or come change nothing.
Status begin_first_epoch(const runtime::InitOptions& options) {
  Status begun = begin_epoch(options);
  while (!begun.is_ok() && goes_on_after(begun)) {
    const Status joined = join_next_view({.is_interrupted = options.is_interrupted});
    if (!joined.is_ok()) return joined;
    const membership::View& view = *elastic_rank().view();
    if (view.lost.empty() && view.joined().empty()) return begun;
    begun = begin_epoch(options);
  }
  return begun;
}

}  // namespace

Status join_view(const runtime::JoinRequest& request) {
  if (is_forked_child()) return {Code::kUnavailable, kForkedSentence};
  if (!elastic_rank().is_elastic())
    return {Code::kUnsupported,
            "this process does not belong to an elastic job; start it with rueda run --min-np, or set "
            "RUEDA_ELASTIC=members."};
  if (t_is_in_init) return {Code::kInternal, "a view cannot be joined while rueda_init runs."};
  Life& life = this_life();
  const std::lock_guard lock(life.mutex);
  if (engine()) return {Code::kInvalidArgument, "call shutdown() before the next view is joined."};
  return join_next_view(request);
}

Status init(runtime::InitOptions options) {
  if (is_forked_child()) return {Code::kUnavailable, kForkedSentence};
  if (t_is_in_init) return {Code::kInternal, "rueda_init was called by a function that rueda_init calls."};
  Life& life = this_life();
  const std::lock_guard lock(life.mutex);
  if (engine()) return Status::ok();
  // Before there is anything that a forked child must not inherit.
  if (!std::exchange(life.has_hooks, true)) {
    std::atexit(at_exit);
    watch_forks(what_children_learn);
  }
  life.has_ended_well = false;
  if (elastic_rank().must_begin()) {
    const Status begun = begin_first_view(options.is_interrupted);
    if (!begun.is_ok()) return begun;
  }
  if (elastic_rank().must_join()) {
    const Status joined = join_next_view({.is_interrupted = options.is_interrupted});
    if (!joined.is_ok()) return joined;
  }
  const membership::View* const view = elastic_rank().view();
  if (life.has_had_epoch || (view != nullptr && view->number > 1)) return begin_epoch(std::move(options));
  const Status begun = begin_first_epoch(options);
  life.has_had_epoch = begun.is_ok();
  return begun;
}

namespace {

Status begin_epoch(runtime::InitOptions options) {
  Life& life = this_life();
  if (elastic_rank().is_elastic())
    options.seat = [](store::World world) { return elastic_rank().seated(std::move(world)); };
  const Result<std::shared_ptr<memory::Arena>> shared = arena();
  if (shared.is_ok())
    options.arena = shared.value();
  else
    RUEDA_LOG(kInfo, "no shared buffers: " + shared.status().why);  // tensors are then allocated elsewhere
  // Before the ranks meet: `rueda stacks` also explains an init that hangs.
  const auto get_env = [](const char* name) -> const char* { return std::getenv(name); };
  if (const Result<Config> config = parse_config(get_env); config.is_ok()) start_endpoint(config.value());
  const auto is_missing = std::make_shared<bool>(false);
  options.is_interrupted = elastic_rank().watching(std::move(options.is_interrupted), is_missing);
  t_is_in_init = true;
  Result<runtime::Session> session = runtime::bootstrap(rendezvous(), std::move(options), get_env);
  rendezvous().watch({});
  t_is_in_init = false;
  if (rendezvous().mpi() && !std::exchange(life.has_mpi_hook, true)) std::atexit(finalize_mpi);
  if (!session.is_ok()) {
    elastic_rank().spend();
    stop_endpoint();
    if (*is_missing) return {Code::kUnavailable, "a member of this view ended before all had met."};
    return session.status();
  }
  session.value().first_handle = life.next_handle;
  session.value().first_prepared = life.next_prepared;
  if (const char* const file = get_env(status::kStopFileVariable)) session.value().stop_file = file;
  if (elastic_rank().is_elastic())
    session.value().view = elastic_rank().view() == nullptr ? 1 : elastic_rank().view()->number;
  session.value().has_elastic_launcher = elastic_rank().has_launcher();
  session.value().timeline = shared_timeline();
  session.value().meters = meters();
  session.value().show_stacks = log_stacks;
  Result<std::shared_ptr<runtime::Engine>> started = runtime::Engine::start(std::move(session).value());
  if (!started.is_ok()) {
    stop_endpoint();
    return started.status();
  }
  set_engine(std::move(started).value());
  if (engine()->session().me == 0) warn_of_misspelt_settings(get_env);
  start_metrics_port(engine()->session(), rendezvous().rendezvous().secret);
  return Status::ok();
}

}  // namespace

void shutdown() {
  if (is_forked_child()) return forget_inherited();
  if (t_is_in_init) return;
  Life& life = this_life();
  const std::lock_guard lock(life.mutex);
  const std::shared_ptr<runtime::Engine> leaving = engine();
  if (!leaving) return;
  leaving->shutdown();
  const runtime::Operations::Numbers next = leaving->operations().next_numbers();
  life.next_handle = next.handle;
  life.next_prepared = next.prepared;
  life.has_ended_well = leaving->health().code == Code::kShutDown;
  const runtime::Session& session = leaving->session();
  const Rank lost = leaving->lost_rank();
  // The members of an elastic job wait for nobody: those that are gone do not belong to the next view.
  if (!life.has_ended_well) elastic_rank().spend(leaving->cut_from());
  if (lost >= 0 && lost != session.me && !elastic_rank().is_elastic())
    rendezvous().note_loss(
        {lost, session.size(), runtime::describe(lost, (*session.all)[static_cast<size_t>(lost)])});
  stop_metrics_port();
  stop_endpoint();
  set_engine(nullptr);
}

}  // namespace rueda::capi

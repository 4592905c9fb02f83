#include "rueda/store/find_rank_0.h"

#include <algorithm>
#include <map>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/base/sleep.h"
#include "rueda/store/address.h"
#include "rueda/store/other_build.h"
#include "rueda/store/socket.h"
#include "rueda/store/tcp_store.h"

namespace rueda::store {
namespace {

constexpr Nanos kSeedAttempt = 2 * kSecond;   // another service on one of the ports may never answer
constexpr Nanos kForeignPause = 5 * kSecond;  // before a port is dialled again where another program answers
constexpr Nanos kLeaving = 2 * kSecond;       // what the rank 0 of an earlier try may need to end
constexpr Nanos kQuickestPause = 50 * kMillisecond;
constexpr Nanos kSlowestPause = kSecond;
constexpr Nanos kLook = 50 * kMillisecond;  // between looks for an interruption
constexpr Nanos kQuiet = 10 * kSecond;      // how long we wait for a name before we say so
constexpr const char* kShareKey =
    "; ranks on several hosts need the same key: share the home directory, or set RUEDA_SECRET_FILE";

// The names under which a rank may reach rank 0. On the host of rank 0, its name can mean a loopback address.
// Nobody listens there, because ranks on other hosts could not reach it.
std::vector<std::string> hosts_to_dial(const Attempt& attempt, const std::string& host) {
  std::vector<std::string> hosts = {host};
  const auto addresses = resolve(host, 9);
  if (!addresses.is_ok() || !addresses.value().front().is_loopback() || is_ip_literal(host)) return hosts;
  const Result<std::string> here = address_behind(host, attempt.is_one_host());
  if (here.is_ok()) hosts.push_back(here.value());
  return hosts;
}

// A tenth of the time that was waited already, so that a thousand ranks do not ask the DNS for a pod that is
// minutes late 20 times a second each. Fails if the wait is interrupted.
Status pause_since(Nanos began, const Attempt& attempt) {
  Nanos now = monotonic_now();
  const Nanos pause = std::clamp((now - began) / 10, kQuickestPause, kSlowestPause);
  const Nanos until = std::min(attempt.deadline.when(), now + pause);
  while (true) {
    if (is_set(attempt.is_interrupted)) return interrupted_status();
    now = monotonic_now();
    if (now >= until) return Status::ok();
    sleep_for(std::min(until - now, kLook));
  }
}

// "train-0.train (RUEDA_STORE)"
std::string place_of_rank_0(const World& world, const std::string& host) {
  const std::string variable = world.method == World::Method::kUrl ? "RUEDA_STORE" : world.seed_variable;
  return variable.empty() ? host : host + " (" + variable + ")";
}

Status unresolved(const Attempt& attempt, const std::string& host) {
  return {Code::kTimeout, "rank " + std::to_string(attempt.world.rank) + " waited for the host name " +
                              place_of_rank_0(attempt.world, host) +
                              " of rank 0, which this machine still cannot resolve; correct the name, check "
                              "that the DNS knows it, or wait longer (RUEDA_START_TIMEOUT)"};
}

// The name of rank 0's host may reach the DNS long after the ranks have started: pods of Kubernetes get
// theirs when they are scheduled. Says once that it waits.
Status await_name(const Attempt& attempt, const std::string& host) {
  const Nanos began = monotonic_now();
  bool is_said = false;
  while (!resolve(host, 9).is_ok()) {
    if (attempt.deadline.is_past()) return unresolved(attempt, host);
    if (!is_said && monotonic_now() - began > kQuiet) {
      RUEDA_LOG(kWarning, "still waiting for the host name " + place_of_rank_0(attempt.world, host) +
                              " of rank 0, which this machine cannot resolve yet");
      is_said = true;
    }
    if (Status status = pause_since(began, attempt); !status.is_ok()) return status;
  }
  return Status::ok();
}

// A listener that has refused this rank.
struct Refusal {
  Status status;
  HandshakeOutcome outcome = HandshakeOutcome::kAccepted;  // as long as it is no rueda

  // Whether it may be rank 0 of this job, and not of another one.
  [[nodiscard]] bool is_of_this_job() const {
    return outcome != HandshakeOutcome::kAccepted && outcome != HandshakeOutcome::kWrongJob;
  }
};

std::string without_stop(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  return text;
}

// What was refused, and what to do about it.
std::string sentence(const Attempt& attempt, const Refusal& refusal) {
  const bool is_key_of_user =
      refusal.outcome == HandshakeOutcome::kWrongSecret && attempt.world.secret_file.empty();
  return without_stop(refusal.status.why) + (is_key_of_user ? kShareKey : "");
}

// The listeners that have refused this rank. They are left alone for a while; later their port may be that
// of rank 0.
class Refusals {
 public:
  Refusals(const Attempt& attempt, bool is_only_port) : attempt_(attempt), is_only_port_(is_only_port) {}

  [[nodiscard]] bool rest(const std::string& host, int port) const {
    const auto found = places_.find({host, port});
    return found != places_.end() && monotonic_now() < found->second.again_at;
  }
  void forget(const std::string& host, int port) { places_.erase({host, port}); }

  // Whether the search ends with this refusal. The rank 0 of an earlier try may be ending, so the listener
  // must refuse twice; a launcher's store is never that of an earlier try.
  bool note(const std::string& host, int port, Refusal refusal) {
    const bool is_meant = is_what_was_meant(refusal);
    const auto before = places_.find({host, port});
    const bool is_second = before != places_.end() && before->second.outcome == refusal.outcome;
    if (!is_meant && (is_only_port_ || refusal.is_of_this_job()) && !std::exchange(is_told_, true))
      RUEDA_LOG(kWarning, "still looking for rank 0: " + sentence(attempt_, refusal) + ".");
    const Nanos leaving = is_other_build(refusal.outcome) ? kLeavingBuild : kLeaving;
    places_[{host, port}] = {refusal.outcome, monotonic_now() + (is_meant ? leaving : kForeignPause)};
    last_ = std::move(refusal);
    return attempt_.world.is_store_served || (is_meant && is_second);
  }
  [[nodiscard]] const Refusal& last() const { return last_; }

 private:
  struct Listener {
    HandshakeOutcome outcome;
    Nanos again_at;
  };

  // Whether this listener, and no other, can be rank 0. Another job leaves the port when it ends. One of 16
  // ports may be that of another user's job of this name, unless the ranks were given one secret.
  [[nodiscard]] bool is_what_was_meant(const Refusal& refusal) const {
    if (is_only_port_) return refusal.outcome != HandshakeOutcome::kWrongJob;
    if (refusal.outcome == HandshakeOutcome::kWrongProtocol) return true;  // it has proved that it is
    return refusal.is_of_this_job() && !attempt_.world.secret_file.empty();
  }

  const Attempt& attempt_;
  const bool is_only_port_;
  std::map<std::pair<std::string, int>, Listener> places_;
  Refusal last_;
  bool is_told_ = false;
};

Status not_found(const Attempt& attempt, const std::string& host, std::span<const int> ports,
                 const Status& last, const Refusal& refusal) {
  const std::string first = std::to_string(ports.front());
  const std::string where =
      ports.size() == 1 ? ", port " + first : ", ports " + first + " to " + std::to_string(ports.back());
  return {Code::kTimeout,
          "rank " + std::to_string(attempt.world.rank) + " did not find rank 0 of job '" + attempt.world.job +
              "' at " + place_of_rank_0(attempt.world, host) + where + ", in time: " +
              (refusal.status.is_ok()
                   ? last.why + "; is rank 0 running there, and does a firewall block these ports?"
                   : sentence(attempt, refusal))};
}

}  // namespace

Result<std::string> address_of_rank_0(const Attempt& attempt, const std::string& host) {
  if (Status status = await_name(attempt, host); !status.is_ok()) return status;
  return address_behind(host, attempt.is_one_host());
}

Result<std::unique_ptr<Store>> dial_from_host(const Attempt& attempt, const TcpSite& site, Deadline deadline,
                                              HandshakeOutcome& refused) {
  const bool is_alone = attempt.world.local_size == 1;
  if (is_alone || attempt.is_one_host()) return dial_tcp_store_once(site, deadline, refused);
  return dial_store_of_host(site, deadline, refused);
}

Result<Rendezvous> find_rank_0(const Attempt& attempt, const std::string& host, std::span<const int> ports,
                               const Secret& secret) {
  if (Status status = await_name(attempt, host); !status.is_ok()) return status;
  const Nanos began = monotonic_now();
  Status last(Code::kTimeout, "no port was tried");
  Refusals refusals(attempt, ports.size() == 1);
  while (true) {
    for (const std::string& name : hosts_to_dial(attempt, host))
      for (const int port : ports) {
        if (refusals.rest(name, port)) continue;
        const TcpSite site = attempt.site_at(name, port, secret);
        const Nanos until = std::min(attempt.deadline.when(), monotonic_now() + kSeedAttempt);
        HandshakeOutcome outcome = HandshakeOutcome::kAccepted;
        Result<std::unique_ptr<Store>> store = dial_from_host(attempt, site, Deadline::at(until), outcome);
        if (store.is_ok()) return Rendezvous{nullptr, std::move(store).value(), secret, {}};
        last = store.status();
        if (last.code != Code::kPermissionDenied)
          refusals.forget(name, port);
        else if (refusals.note(name, port, {last, outcome}))
          return Status(last.code, sentence(attempt, refusals.last()));
        if (attempt.deadline.is_past()) break;
        if (is_set(attempt.is_interrupted)) return interrupted_status();
      }
    if (attempt.deadline.is_past()) break;
    if (Status status = pause_since(began, attempt); !status.is_ok()) return status;
  }
  return not_found(attempt, host, ports, last, refusals.last());
}

}  // namespace rueda::store

#include "rueda/runtime/calibrate.h"

#include <algorithm>
#include <array>
#include <vector>

#include "rueda/base/bytes.h"
#include "rueda/runtime/hierarchy.h"
#include "rueda/runtime/loss_reason.h"

namespace rueda::runtime {
namespace {

using control::MessageType;

constexpr size_t kPingBytes = 8;
constexpr size_t kBulkBytes = 256 << 10;  // hides start-up costs, and takes only 2 ms at 1 Gbit/s
constexpr int kPings = 8;
constexpr int kBulks = 3;
// When the time of init is over, the rank that misses another one says so first (after at most 500 ms:
// links.cc). Then a rank waits longer for a leader, which looks for what others have told five times a
// second, and still longer for the one above it, or for the root, which begins to measure. What it could say
// would name a rank that only waits as well.
constexpr Nanos kLeaderTellsFirst = 1500 * kMillisecond;
constexpr Nanos kAllOthersTellFirst = 2 * kLeaderTellsFirst;

// Drives the links until a condition holds.
class LinkDriver {
 public:
  LinkDriver(Links& links, const std::vector<PeerInfo>& all, Deadline deadline,
             const std::function<Status()>& interrupted)
      : links_(links), all_(all), deadline_(deadline), interrupted_(interrupted) {}

  // longer: after the deadline.
  Status until(const std::function<bool()>& is_done, const std::function<std::string()>& waiting_for,
               Nanos longer = 0) {
    const Deadline deadline = Deadline::at(deadline_.when() + longer);
    Nanos next_check = monotonic_now() + 200 * kMillisecond;
    while (!is_done()) {
      const bool moved = links_.progress([this](const transport::Completion& c) {
        if (!c.status.is_ok()) failure_ = c.status;
        ++completed_;
      });
      for (ControlMessage& message : links_.take_control()) messages_.push_back(std::move(message));
      for (const transport::Loss& loss : links_.take_losses()) {
        if (loss.peer < 0) return loss.status;
        const auto peer = static_cast<size_t>(loss.peer);
        return {Code::kPeerLost, describe(loss.peer, all_[peer]) +
                                     " was lost during init: " + loss_reason(loss.peer, loss.status.why)};
      }
      if (!failure_.is_ok()) return failure_;
      const Nanos now = monotonic_now();
      if (deadline.is_past(now)) {
        return {Code::kTimeout, "init timed out while it waited for " + waiting_for() +
                                    "; raise RUEDA_START_TIMEOUT if that rank is only slow."};
      }
      if (now >= next_check) {
        if (Status s = interrupted_(); !s.is_ok()) return s;
        next_check = now + 200 * kMillisecond;
      }
      if (!moved) links_.sleep(Deadline::at(std::min(deadline.when(), next_check)));
    }
    return Status::ok();
  }

  // One message each way. is_first: this rank begins.
  Status exchange(Rank peer, std::span<std::byte> buffer, bool is_first) {
    const auto wait = [&](int64_t target) {
      return until([&] { return completed_ >= target; },
                   [&] { return describe(peer, all_[static_cast<size_t>(peer)]) + " to answer a ping"; },
                   is_first ? 0 : kAllOthersTellFirst);
    };
    for (const bool is_sending : {is_first, !is_first}) {
      const int64_t target = completed_ + 1;
      if (is_sending)
        links_.data(peer)->send(1, buffer);
      else
        links_.data(peer)->recv(2, buffer);
      if (Status s = wait(target); !s.is_ok()) return s;
    }
    return Status::ok();
  }

  const std::vector<ControlMessage>& messages() const { return messages_; }
  // All messages after the first one of each peer are for the engine.
  void give_back_later_messages() {
    std::vector<bool> is_seen(all_.size(), false);
    std::vector<ControlMessage> later;
    for (ControlMessage& message : messages_) {
      const auto from = static_cast<size_t>(message.from);
      if (is_seen[from]) later.push_back(std::move(message));
      is_seen[from] = true;
    }
    links_.put_back_control(std::move(later));
  }

 private:
  Links& links_;
  const std::vector<PeerInfo>& all_;
  Deadline deadline_;
  const std::function<Status()>& interrupted_;
  std::vector<ControlMessage> messages_;
  Status failure_;
  int64_t completed_ = 0;
};

// buffer: kBulkBytes.
Status measure(LinkDriver& driver, Rank peer, bool is_first, std::span<std::byte> buffer,
               MeasuredLink& link) {
  const auto best_of = [&](int times, std::span<std::byte> bytes, Nanos& best) -> Status {
    for (int i = 0; i < times; ++i) {
      const Nanos begin = monotonic_now();
      if (Status s = driver.exchange(peer, bytes, is_first); !s.is_ok()) return s;
      const Nanos took = monotonic_now() - begin;
      if (best == 0 || took < best) best = took;
    }
    return Status::ok();
  };
  Nanos ping = 0;
  Nanos bulk = 0;
  if (Status s = best_of(kPings, buffer.first(kPingBytes), ping); !s.is_ok()) return s;
  if (Status s = best_of(kBulks, buffer, bulk); !s.is_ok()) return s;
  link.latency_us = static_cast<double>(ping) / 2e3;
  const Nanos transfer = std::max<Nanos>(bulk - ping, 1);
  link.gbps = 2.0 * static_cast<double>(kBulkBytes) / static_cast<double>(transfer);
  return Status::ok();
}

// A child says that it is here when all ranks below it are.
Status await_children(LinkDriver& driver, const Hierarchy& hierarchy, const std::vector<PeerInfo>& all) {
  std::vector<Rank> missing = hierarchy.children();
  const auto is_complete = [&] {
    for (const ControlMessage& message : driver.messages()) std::erase(missing, message.from);
    return missing.empty();
  };
  const auto leads = [&](Rank child) { return hierarchy.below(child).count() > 1; };
  const auto awaited = [&] {
    const Rank child = missing.front();
    const std::string who = describe(child, all[static_cast<size_t>(child)]);
    return who + " to connect" + (leads(child) ? ", and the ranks below it" : "");
  };
  return driver.until(is_complete, awaited, std::ranges::any_of(missing, leads) ? kLeaderTellsFirst : 0);
}

Bytes encode_links(const MeasuredLinks& links) {
  ByteWriter out;
  for (const MeasuredLink& link : {links.local, links.remote}) {
    out.put(link.latency_us);
    out.put(link.gbps);
  }
  return std::move(out).take();
}

}  // namespace

Result<MeasuredLinks> calibrate(Links& links, Rank me, const std::vector<PeerInfo>& all, Deadline deadline,
                                const std::function<Status()>& interrupted) {
  LinkDriver driver(links, all, deadline, interrupted);
  MeasuredLinks measured;
  const Hierarchy hierarchy(me, all);
  const std::array<Rank, 2> partners = {hierarchy.local_probe(), hierarchy.remote_probe()};
  const std::array<MeasuredLink*, 2> wanted = {&measured.local, &measured.remote};
  const auto measure_to = [&](Rank peer, bool is_first, MeasuredLink& link) {
    Bytes buffer(kBulkBytes);
    const Status done = measure(driver, peer, is_first, buffer, link);
    if (!done.is_ok()) links.keep(std::move(buffer));  // a message may still be under way
    return done;
  };
  if (Status s = await_children(driver, hierarchy, all); !s.is_ok()) return s;
  if (const Rank parent = hierarchy.parent(); parent >= 0) {
    links.send_control(parent, MessageType::kHeartbeat, control::encode(control::Heartbeat{}));
    for (size_t i = 0; i < partners.size(); ++i) {
      if (partners[i] != me) continue;
      if (Status s = measure_to(hierarchy.root(), false, *wanted[i]); !s.is_ok()) return s;
    }
    const auto is_from_parent = [parent](const ControlMessage& message) { return message.from == parent; };
    const auto find = [&] { return std::ranges::find_if(driver.messages(), is_from_parent); };
    const Status told =
        driver.until([&] { return find() != driver.messages().end(); },
                     [&] { return describe(parent, all[static_cast<size_t>(parent)]) + " to start the job"; },
                     kAllOthersTellFirst);
    if (!told.is_ok()) return told;
    ByteReader in(find()->payload);
    for (MeasuredLink* link : wanted) {
      link->latency_us = in.get<double>();
      link->gbps = in.get<double>();
    }
    if (!in.is_ok() || find()->type != MessageType::kCosts)
      return Status(Code::kInternal, "rank " + std::to_string(parent) +
                                         " did not send the costs of links at the end of init.");
  } else {
    for (size_t i = 0; i < partners.size(); ++i) {
      if (partners[i] < 0) continue;
      if (Status s = measure_to(partners[i], true, *wanted[i]); !s.is_ok()) return s;
    }
  }
  links.send_control_below(MessageType::kCosts, encode_links(measured));
  const Status flushed =
      driver.until([&] { return !links.has_unsent_control(); }, [] { return "the network"; });
  if (!flushed.is_ok()) return flushed;
  driver.give_back_later_messages();
  return measured;
}

}  // namespace rueda::runtime

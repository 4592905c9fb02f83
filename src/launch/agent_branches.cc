// The part of Agents for agents that others have started.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "launch/agent_tree.h"
#include "launch/agents.h"
#include "launch/branch_messages.h"
#include "rueda/base/release.h"

namespace rueda::launch {

HostLink* Agents::parent_of(const HostLink& link) {
  return link.branch() ? &links_[static_cast<size_t>(link.branch()->parent)] : nullptr;
}

Agents::TreePlace& Agents::place_of(const HostLink& link) {
  return places_[static_cast<size_t>(&link - links_.data())];
}

// Called again and again. An agent is asked to start others once it has proved that it is of our release.
void Agents::begin_branches() {
  if (!is_starting_) return;
  for (size_t host = 0; host < places_.size(); ++host) {
    if (links_[host].is_attached() || places_[host].parent < 0) continue;
    HostLink& parent = links_[static_cast<size_t>(places_[host].parent)];
    const bool is_ready = parent.is_open() && parent.hello() && parent.hello()->release == kRelease &&
                          parent.hello()->protocol == kProtocol;
    if (is_ready) begin_branch(host, parent);
  }
}

void Agents::begin_branch(size_t host, HostLink& parent) {
  HostLink& link = links_[host];
  const auto number = static_cast<int32_t>(host);
  const auto carrier = static_cast<size_t>(places_[host].parent);
  places_[carrier].has_branches = true;
  link.attach({.parent = places_[host].parent,
               .parent_host = parent.host(),
               .tell = [this, carrier, number](MessageType type, std::span<const std::byte> payload) {
                 links_[carrier].send(type, for_branch(number, payload));
               }});
  announce(link);
  parent.send(MessageType::kBranch,
              encode(BranchOrder{
                  .branch = number, .host = link.host(), .binary = options_->binary, .ssh = options_->ssh}));
}

Status Agents::on_branch_part(const HostLink& parent, std::span<const std::byte> payload,
                              const Handlers& handlers) {
  const Result<BranchPart> part = decode_branch_part(payload);
  if (!part.is_ok()) return part.status();
  const auto host = static_cast<size_t>(part.value().branch);
  if (host >= links_.size()) return {Code::kInternal, "its agent speaks of a host that it has not started"};
  HostLink& link = links_[host];
  if (parent_of(link) != &parent || !link.is_open()) return Status::ok();  // we have given it up
  if (part.value().stream == Stream::kStderr) {
    const std::string lines = link.take_errors(as_text(part.value().bytes));
    if (!lines.empty()) handlers.on_errors(link, lines);
    return Status::ok();
  }
  link.feed(part.value().bytes, [&](const AgentMessage& message) { on_message(link, message, handlers); });
  return Status::ok();
}

Status Agents::on_branch_ended(const HostLink& parent, std::span<const std::byte> payload) {
  const Result<BranchEnd> end = decode_branch_end(payload);
  if (!end.is_ok()) return end.status();
  const auto host = static_cast<size_t>(end.value().branch);
  if (host >= links_.size()) return {Code::kInternal, "its agent speaks of a host that it has not started"};
  HostLink& link = links_[host];
  if (parent_of(link) != &parent) return Status::ok();
  link.close(end.value().trouble);
  link.on_reaped(end.value().wait_status);
  if (is_starting_ && !link.hello()) start_here_instead(host);
  return Status::ok();
}

// The user's key, or the configuration of ssh, may be on this machine only.
void Agents::start_here_instead(size_t host) {
  HostLink& link = links_[host];
  TreePlace& place = places_[host];
  place.tried_by = link.branch()->parent_host;
  place.tried_why = link.lost_because();
  place.parent = -1;
  const auto is_first = [&](const TreePlace& other) { return &other == &place || other.tried_by.empty(); };
  if (options_->is_verbose || std::ranges::all_of(places_, is_first))
    say_(fmt::format("the agent of {} is started from here, because {} could not start it: {}", link.host(),
                     place.tried_by, place.tried_why));
  link = HostLink(std::string(link.host()), link.way());
  const Status begun = begin(link, *options_);
  if (begun.is_ok()) return;
  link.attach(AgentProcess{});
  link.close(begun.why);
  link.on_reaped(0);
}

// Nothing will come any more through an agent that has ended. Parents come before their branches.
void Agents::end_branches_of_lost() {
  for (HostLink& link : links_) {
    const HostLink* const parent = parent_of(link);
    if (parent == nullptr || !parent->is_reaped() || parent->is_open() || link.is_reaped()) continue;
    const std::string& before = place_of(*parent).lost_with;
    std::string why = before.empty() ? fmt::format("it was reached through {}, which is lost: {}",
                                                   parent->host(), parent->lost_because())
                                     : before;
    link.close(why);
    place_of(link).lost_with = std::move(why);
    link.on_reaped(0);
    link.excuse_silence(std::max(link.last_heard(), parent->last_heard() + 1));
  }
}

}  // namespace rueda::launch

// What the ranks of a job need to start: the store that the launcher serves, and a message to each agent with
// its ranks, their command and their environment.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "launch/host_link.h"
#include "launch/job_options.h"
#include "rueda/base/handshake.h"
#include "rueda/store/store.h"

namespace rueda::launch {

struct JobIdentity {
  std::string id;  // public: it appears in messages and in names of shared memory
  Secret secret;
};
// secret_file: read, or written if it does not exist; "" = the secret is in no file.
Result<JobIdentity> make_identity(const std::string& secret_file = {});

struct JobStart {
  std::unique_ptr<store::StoreServer> store;  // must live as long as the job
  RendezvousSettings rendezvous;
  Job common;                              // what the messages to all agents have in common
  std::unique_ptr<store::Store> client{};  // of the store, in an elastic job
  std::vector<Variables> own{};            // of each rank, beside those of its place
};
// All agents have said hello. door: the address at which agents join; "" = none do.
Result<JobStart> prepare_ranks(const RunOptions& options, const JobIdentity& identity,
                               std::span<const HostLink> links, const std::string& door = {});
// The payload of kJob for this host of the placements.
Result<Bytes> job_message(const RunOptions& options, const JobStart& start,
                          std::span<const Placement> placements, const HostLink& link, int host);

}  // namespace rueda::launch

// What a successful init hands to the engine: settings, the peer info of all ranks, the connections, the
// backends, and what was measured. bootstrap makes it on the thread that called init. The engine then owns it
// until the epoch ends; from then on only the engine thread changes it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rueda/backend/mpi/process.h"
#include "rueda/backend/nccl/library.h"
#include "rueda/backend/table.h"
#include "rueda/base/config.h"
#include "rueda/base/types.h"
#include "rueda/base/unique_fd.h"
#include "rueda/memory/cuda/device.h"
#include "rueda/runtime/calibrate.h"
#include "rueda/runtime/links.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/status/meters.h"
#include "rueda/trace/timeline.h"

namespace rueda::runtime {

struct MpiWorld {
  std::shared_ptr<backend::mpi::Process> process;
  backend::mpi::Team team;
  std::optional<backend::mpi::Team> device_team = std::nullopt;  // if MPI is given memory of devices
};

struct Session {
  Config config;
  Rank me = 0;
  Epoch epoch = 0;
  std::unique_ptr<std::vector<PeerInfo>> all;  // stable address: links and backend refer to it
  RankPlacement place;
  std::vector<std::vector<Rank>> process_sets;  // static ones; ids 1, 2, … and 0 for the world
  std::string launcher, launcher_reason;
  int64_t view = 0;                           // of an elastic job; 0: it is none
  bool has_elastic_launcher = false;          // decides the views, and ends ranks that are stopped
  std::string stop_file;                      // see status/stop_file.h
  std::string listen_host;                    // address of this machine that peers dial; empty: none does
  std::unique_ptr<Links> links;               // null in a single-process job
  std::shared_ptr<cuda::Devices> devices;     // null: this process has no CUDA driver, or none that is usable
  std::string cuda_fault;                     // why it is not usable
  std::shared_ptr<const nccl::Library> nccl;  // null: this rank does not use NCCL
  std::string nccl_fault;                     // why it cannot
  std::unique_ptr<backend::BackendTable> backends;
  bool reduces_in_shared_memory = false;  // the ranks of one host
  UniqueFd doorbell;  // an eventfd: wakes the engine thread; peers of this host ring it as well
  std::function<void(const transport::Completion&)> on_data;  // feeds the backend
  // How the ranks met, if it was through MPI; it may run their collectives, too.
  std::optional<MpiWorld> mpi;
  MeasuredLinks measured;
  std::string news_file;       // in which the agent of this host keeps news of the job; empty: none
  int64_t first_handle = 1;    // larger than any handle this process has given out
  int64_t first_prepared = 1;  // the same for prepared operations
  std::shared_ptr<trace::Timeline> timeline;  // of this process's earlier epochs; null: there were none
  std::shared_ptr<status::Meters> meters;     // the same
  std::function<void()> show_stacks;  // writes the stacks of this process to the log, soon; null: it cannot

  [[nodiscard]] Rank size() const { return static_cast<Rank>(all->size()); }
  [[nodiscard]] const JobSettings& settings() const { return settings_of_job(*all); }
};

}  // namespace rueda::runtime

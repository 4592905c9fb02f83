// The one engine behind the C ABI, and what every entry point needs: the engine, if there is one, and the
// last error of the calling thread. With what forks.cc keeps for children, these are the only
// mutable globals of the core.
#pragma once

#include <memory>
#include <string>

#include "rueda/base/status.h"
#include "rueda/runtime/bootstrap.h"
#include "rueda/runtime/elastic_rank.h"
#include "rueda/runtime/engine.h"

namespace rueda::capi {

// Null before init, after shutdown and in a forked child.
std::shared_ptr<runtime::Engine> engine();
void set_engine(std::shared_ptr<runtime::Engine> engine);

// For whom an init of this process waits.
const runtime::InitWait& init_wait();

// The arena from which shared buffers are allocated. It is made at the first call and kept
// until the process ends.
Result<std::shared_ptr<memory::Arena>> arena();
// Looks in that arena and, in a forked child, in the copy of its parent's arena.
bool is_shared_buffer(const void* address);
bool release_shared_buffer(void* buffer);  // false if no shared buffer begins there
void trim_shared_buffers();

// Memory of a device that a caller has detached and now owns, and its release; false if it is not such
// memory.
void keep_detached(runtime::OwnedMemory memory);
bool release_detached(void* memory);

// Of all epochs of this process.
trace::Timeline& timeline();
std::shared_ptr<trace::Timeline> shared_timeline();
runtime::RendezvousPoint& rendezvous();
runtime::ElasticRank& elastic_rank();

// Keeps the sentence for rueda_last_error() and returns the code.
int fail(const Status& why);
int fail_not_initialized();
const char* last_error();
// Keeps a text alive until this thread next calls a function that returns a text.
const char* keep_text(std::string text);

std::string describe_json(const runtime::Engine* engine);
// What a child of fork() will say instead: what does not change in an epoch.
std::string describe_to_children(const runtime::Engine& engine);

}  // namespace rueda::capi

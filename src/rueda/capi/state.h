// The one engine behind the C ABI, and what every entry point needs: the engine if there is one, and the
// calling thread's last error. The only mutable globals of the core.
#pragma once

#include <memory>
#include <string>

#include "rueda/base/status.h"
#include "rueda/runtime/bootstrap.h"
#include "rueda/runtime/engine.h"

namespace rueda::capi {

// Null before init, after shutdown and in a forked child.
std::shared_ptr<runtime::Engine> engine();

// Where buckets come from: made when first asked for, kept as long as the process lives.
Result<std::shared_ptr<memory::Arena>> arena();
// Of that arena, or in a forked child of its parent's, of which it has a copy.
bool is_bucket(const void* address);
bool release_bucket(void* bucket);  // false when none begins there
void trim_buckets();

Status init(runtime::InitOptions options);
void shutdown();

// Remembers why for rueda_last_error() and returns its code.
int fail(const Status& why);
int fail_not_initialized();
const char* last_error();
// Keeps a text alive until this thread's next call that returns one.
const char* keep_text(std::string text);

std::string describe_json(const runtime::Engine* engine);

}  // namespace rueda::capi

/* rueda: the C ABI. The only symbols librueda.so exports; everything else is built on them.
 *
 * Conventions. Functions that can fail return a rueda_status; the sentence behind the last failure of the
 * calling thread is rueda_last_error(). All functions may be called from any thread. Buffers given to
 * rueda_submit are borrowed until the handle is done. Structs that may grow begin with
 * struct_size = sizeof(the struct); a size that this library never had is refused. Functions that are added
 * later leave RUEDA_ABI as it is.
 */
#ifndef RUEDA_RUEDA_H_
#define RUEDA_RUEDA_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RUEDA_API __attribute__((visibility("default")))
#define RUEDA_VERSION "0.1.0"
#define RUEDA_ABI 1

typedef enum rueda_status {
  RUEDA_OK = 0,
  RUEDA_INVALID_ARGUMENT = 1,
  RUEDA_MISMATCH = 2,
  RUEDA_NOT_INITIALIZED = 3,
  RUEDA_DUPLICATE_NAME = 4,
  RUEDA_SHUT_DOWN = 5,
  RUEDA_PEER_LOST = 6,
  RUEDA_TIMEOUT = 7,
  RUEDA_UNAVAILABLE = 8,
  RUEDA_PERMISSION_DENIED = 9,
  RUEDA_UNSUPPORTED = 10,
  RUEDA_INTERNAL = 11,
  RUEDA_STALLED = 12
} rueda_status;

typedef enum rueda_dtype {
  RUEDA_UINT8 = 0,
  RUEDA_INT8 = 1,
  RUEDA_UINT16 = 2,
  RUEDA_INT16 = 3,
  RUEDA_INT32 = 4,
  RUEDA_INT64 = 5,
  RUEDA_FLOAT16 = 6,
  RUEDA_FLOAT32 = 7,
  RUEDA_FLOAT64 = 8,
  RUEDA_BOOL = 9,
  RUEDA_BFLOAT16 = 10
} rueda_dtype;

typedef enum rueda_collective {
  RUEDA_ALLREDUCE = 0,
  RUEDA_ALLGATHER = 1,
  RUEDA_BROADCAST = 2,
  RUEDA_JOIN = 3,
  RUEDA_ALLTOALL = 4,
  RUEDA_BARRIER = 5,
  RUEDA_REDUCESCATTER = 6
} rueda_collective;

typedef enum rueda_op {
  RUEDA_AVERAGE = 0,
  RUEDA_SUM = 1,
  RUEDA_ADASUM = 2,
  RUEDA_MIN = 3,
  RUEDA_MAX = 4,
  RUEDA_PRODUCT = 5
} rueda_op;

/* ---- life cycle ---- */

typedef struct rueda_init_options {
  uint32_t struct_size;
  /* Static process sets: set_sizes[i] world ranks each, one after the other in set_ranks; their ids are
   * 1, 2, … A set of all ranks is the world, 0, and takes no id; a set that is named again has the id that
   * it has already. All ranks name the same sets; see set_is_own. */
  int32_t set_count;
  const int32_t* set_sizes;
  const int32_t* set_ranks;
  int32_t expected_size; /* 0 = any; otherwise init fails if the world has another size */
  /* An MPI_Comm of an initialised MPI, as a number (an int or a pointer, whichever the MPI of this process
   * has): its ranks are the ranks of the job. 0 = none; the launcher decides. Its members all call
   * rueda_init. */
  uint64_t mpi_communicator;
  /* Called several times a second on the calling thread while rueda_init waits for other ranks; it may run
   * handlers of signals. Non-zero: rueda_init gives up, tells the other ranks, and fails with
   * RUEDA_UNAVAILABLE. NULL = nothing interrupts it. It must not call rueda_init; rueda_shutdown has no
   * effect in it. */
  int32_t (*is_interrupted)(void);
  /* set_count bytes, or NULL = all 0. Not 0: other ranks may name another set in this place, or none, as the
   * members of several MPI communicators do. The sets of all ranks are then registered on all ranks: those
   * of the first place, by rank, then those of the second, and so on. */
  const uint8_t* set_is_own;
} rueda_init_options;

/* Collective: blocks until every rank has called it (RUEDA_START_TIMEOUT). NULL = defaults. A second call
 * while initialised has no effect. A call that failed may be repeated. */
RUEDA_API int rueda_init(const rueda_init_options* options);
/* Ends the engine on every rank. Pending operations, and later operations of other ranks, fail with
 * RUEDA_SHUT_DOWN. Later operations of this rank fail with RUEDA_NOT_INITIALIZED until it calls rueda_init
 * again. May be called repeatedly. */
RUEDA_API void rueda_shutdown(void);
/* A child of fork() has no engine: its operations fail with RUEDA_NOT_INITIALIZED, and rueda_init fails. This
 * function, those of the ranks and of the epoch, rueda_process_set_ids and rueda_process_set_ranks answer
 * there what the parent knew at the fork, until the child calls rueda_shutdown. */
RUEDA_API int rueda_is_initialized(void);
/* RUEDA_OK while operations can succeed; otherwise the reason: a peer was lost, or another rank shut down. */
RUEDA_API int rueda_health(void);

/* -1 before init and after shutdown. */
RUEDA_API int rueda_rank(void);
RUEDA_API int rueda_size(void);
RUEDA_API int rueda_local_rank(void);
RUEDA_API int rueda_local_size(void);
RUEDA_API int rueda_cross_rank(void);
RUEDA_API int rueda_cross_size(void);
RUEDA_API int rueda_is_homogeneous(void); /* 1, 0, or -1 */
/* The number of the current epoch. It is equal on all ranks and larger than that of any earlier init of this
 * process. When it changes, everything that belongs to the old epoch becomes invalid: process sets, handles
 * and results. */
RUEDA_API int64_t rueda_epoch(void);

RUEDA_API const char* rueda_version(void);    /* "0.1.0" */
RUEDA_API const char* rueda_last_error(void); /* of this thread; valid until its next call */
/* What was found and chosen, as JSON: launcher and why, host, the address listened on, transports per peer
 * and the shortest round trips where the network stack counts them, settings, SIMD target, how tensors in GPU
 * memory are reduced, counters, the algorithm of this rank's last batch, and the predicted times of
 * allreduces by every algorithm that may be chosen. Before init: the launcher that init would follow. Valid
 * until the next call of this thread. */
RUEDA_API const char* rueda_describe(void);

/* ---- elastic jobs (`rueda run --min-np`) ---- */

/* The members of such a job change from view to view: numbered lists of processes. The processes that are
 * started first belong to view 1, and rueda_init works for them as in other jobs. After a loss, operations
 * fail with RUEDA_PEER_LOST on all survivors, and so do later inits of this view. A process then calls
 * rueda_shutdown, rueda_elastic_join and rueda_init, and has another rank, in a world of another size,
 * without a restart. rueda_init of a process that belongs to no view joins the next one by itself, with no
 * commit. */
typedef struct rueda_elastic_join_options {
  uint32_t struct_size;
  int32_t reserved; /* 0 */
  int64_t commit;   /* the newest state that this process holds, as it numbers its commits; -1: none */
  const void*
      digest; /* of the names, shapes and types of its state; processes with another one cannot join */
  uint64_t digest_bytes;           /* 256 at most; 0: it says nothing */
  double timeout_s;                /* 0: --elastic-timeout */
  int32_t (*is_interrupted)(void); /* as in rueda_init_options; NULL = nothing interrupts it */
} rueda_elastic_join_options;
/* Not in an epoch: waits until the launcher has decided the next view, and fails if it goes on without this
 * process, or if there is none in time. */
RUEDA_API int rueda_elastic_join(const rueda_elastic_join_options* options);
RUEDA_API int rueda_is_elastic(void);
/* The view that was joined last, as JSON: {"number": 2, "rank": 0, "size": 3, "commit": 41, "holders": [0,
 * 2], "joined": [2], "lost": ["b:1#0"]}. commit: the newest that a member holds, -1: none; holders: the ranks
 * that hold it. "{}" before the first join. Valid until this thread next calls a function that returns a
 * text. */
RUEDA_API const char* rueda_elastic_view(void);
/* This process holds the commit with this number; all members commit equally often. Returns at once, except
 * at a commit at which the members may be about to leave the view: then when it is known. */
RUEDA_API void rueda_elastic_committed(int64_t commit);
typedef struct rueda_elastic_news_info {
  uint32_t struct_size;
  int32_t are_hosts_added, are_hosts_removed;
  int32_t does_leave; /* this process does not belong to the next view */
  int64_t at_commit;  /* all members leave the view when they hold this commit; -1: they stay */
} rueda_elastic_news_info;
/* What the launcher has said; never blocks. */
RUEDA_API int rueda_elastic_news(rueda_elastic_news_info* news);

/* ---- process sets ---- */

/* Collective over all ranks of the world, in the same order on each of them. *id: the id of the new set. */
RUEDA_API int rueda_add_process_set(const int32_t* ranks, int32_t count, int32_t* id);
/* The same. The next new set may get this id; what was prepared for the removed one is forgotten. */
RUEDA_API int rueda_remove_process_set(int32_t id);
/* Returns the number of sets, including the world (id 0), and their ids if capacity is large enough; -1
 * before init. */
RUEDA_API int rueda_process_set_ids(int32_t* ids, int32_t capacity);
/* Returns the number of ranks of the set, and the ranks if capacity is large enough. -1: unknown set, -2: not
 * initialised. */
RUEDA_API int rueda_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity);

/* ---- collectives ---- */

/* Shared memory is host memory that all ranks of the host map. Memory of a device needs a backend for it; if
 * the job has none, the operation fails with RUEDA_UNSUPPORTED on every rank. */
enum rueda_memory { RUEDA_HOST_MEMORY = 0, RUEDA_SHARED_MEMORY = 1, RUEDA_DEVICE_MEMORY = 2 };

/* How a sum of float32 travels between hosts. Default: as RUEDA_WIRE says, if the tensor is one that can be
 * encoded; otherwise as float32. int8: blocks of 256 elements with a float32 scale. */
enum rueda_wire {
  RUEDA_WIRE_DEFAULT = 0,
  RUEDA_WIRE_FLOAT32 = 1,
  RUEDA_WIRE_BF16 = 2,
  RUEDA_WIRE_FP16 = 3,
  RUEDA_WIRE_INT8 = 4,
  /* Added to one of these: what is lost is not kept, because the name does not say that the next tensor of
   * this name continues this one. */
  RUEDA_WIRE_WITHOUT_FEEDBACK = 256
};

typedef struct rueda_request {
  uint32_t struct_size;
  int32_t what;     /* rueda_collective */
  int32_t dtype;    /* rueda_dtype */
  int32_t op;       /* rueda_op; reductions only */
  const char* name; /* UTF-8; matches the ranks of a process set */
  int32_t process_set;
  int32_t root_rank; /* broadcast: a world rank */
  double prescale;
  double postscale;
  int32_t ndim;
  int32_t device; /* where the framework has the tensor: -1 CPU, or a GPU index; input may be elsewhere */
  const int64_t* shape;
  const void* input;
  /* Memory of the result's size and of input's kind; it may be input (allreduce, broadcast). NULL: the engine
   * allocates it (allgather, alltoall, reducescatter), and rueda_result returns it. Of operations in flight
   * that share memory, the engine runs one after the other. It takes the output of an allgather or alltoall
   * for as large as if all ranks gave as many rows as this one. */
  void* output;
  const int32_t* splits; /* alltoall: rows for each rank of the set; NULL = even */
  int32_t split_count;
  int64_t tag; /* join: any number; every rank receives the largest of all ranks */
  /* 0: tensors are fused and run in the order in which they become ready. Tensors with another number leave
   * one bucket of at most RUEDA_PRIORITY_BYTES at a time, the largest number first; negative numbers come
   * after 0. The number of the first rank counts. A group whose members have a priority need not run as a
   * whole: submit a long tensor as a group of its parts, so that others can overtake between them. */
  int32_t priority;
  /* RUEDA_DEVICE_MEMORY: when input may be read. An event of the framework; NULL = at once. If
   * ready_is_stream is not 0, a stream of the device (NULL: its default stream): after what is enqueued there
   * so far, and perhaps after some of what is enqueued next. Tensors that become ready on one stream one
   * after the other then share an event. A stream that is captured into a graph is refused. The stream must
   * live until the operation was launched, in a job of one rank until its handle is released. */
  void* ready;
  int32_t memory; /* rueda_memory: where input and output are; all ranks give the same kind */
  /* For names that are new in each call because they contain a running number, as "allreduce.noname.7": the
   * byte of the name at which the number begins, so that steps that recur are recognised all the same. 0: the
   * name contains none. */
  int64_t numbered_at;
  int64_t ready_is_stream; /* see ready */
  /* rueda_wire: how a sum or average of float32 in host memory travels between hosts; all ranks give the
   * same. Inside a host it is exact. Other types than RUEDA_WIRE_FLOAT32 keep what they lose of a tensor of
   * this name and process set, and add it to the next one. Tensors of less than 1024 elements travel as
   * float32. */
  int64_t wire;
} rueda_request;

/* Submits count requests as one group that completes as a whole (count = 1: one operation). If one of them is
 * refused, none is submitted. *handle is a new positive number. Any thread; returns at once. */
RUEDA_API int rueda_submit(const rueda_request* requests, int32_t count, int64_t* handle);
/* The same for a caller whose next call is rueda_wait: the waiting thread then does the work of the engine,
 * and the engine thread is not woken. Without such a call, the operation begins when the engine thread wakes
 * by itself, within 0.5 s. */
RUEDA_API int rueda_submit_for_wait(const rueda_request* requests, int32_t count, int64_t* handle);

/* Operations that recur. rueda_prepare describes one once: request is that of one tensor, whose input, output
 * and ready are ignored. It submits nothing. *prepared is a new positive number, which is valid until
 * rueda_forget, rueda_shutdown or the end of the process set. It fails as rueda_submit does, and for a join.
 */
RUEDA_API int rueda_prepare(const rueda_request* request, int64_t* prepared);
typedef struct rueda_start_item {
  int64_t prepared;
  const void* input; /* this, output and ready: as in rueda_request, with its ready_is_stream */
  void* output;
  void* ready;
  int64_t handle; /* set by rueda_start: as rueda_submit gives it, or 0 if this one was not started */
} rueda_start_item;
/* Submits prepared operations, each as one of its own, with less work than rueda_submit. While a learned plan
 * runs, no name is looked up from the second run in it on, and no memory is allocated if the handle of the
 * last run was released and the result is the caller's. items: as many as count. An operation that has not
 * ended cannot start again. If one is refused, the status says why; those before it have started, and those
 * behind it have not. As a stream, the per-thread default stream is refused. Any thread; returns at once. */
RUEDA_API int rueda_start(rueda_start_item* items, int32_t count);
/* Forgets what was prepared. A run under way goes on. */
RUEDA_API void rueda_forget(int64_t prepared);

/* Tensors with a wire type are from now on scaled by `factor` in comparison with before, as by a new loss
 * scale: what this rank has kept of them for the next calls is scaled alike. Call it on all ranks while no
 * such tensor is in flight. factor: positive and finite; the product of all since init, 1e-50 to 1e50. */
RUEDA_API int rueda_rescale_residuals(double factor);

/* What this rank has kept of tensors with a wire type, as bytes for a checkpoint of this rank. names: `count`
 * full names of tensors of a process set; null: everything, of all sets. Writes at most `size` bytes to `out`
 * and returns how many there are, or a negative status: RUEDA_INVALID_ARGUMENT while operations are in
 * flight. */
RUEDA_API int64_t rueda_save_residuals(int32_t process_set, const char* const* names, int32_t count,
                                       void* out, int64_t size);
/* Puts back what rueda_save_residuals has written on this rank, to the bit: the tensors for which it was
 * asked then have what they had, or nothing; if it was asked for everything, all others have nothing. Where
 * the members of the process set or their hosts are others now, residuals are dropped, and the log says so.
 * RUEDA_INVALID_ARGUMENT, and nothing changes, while operations are in flight or if the bytes are no such. */
RUEDA_API int rueda_load_residuals(const void* data, int64_t size);

/* 1: done, successfully or not; 0: pending; -1: unknown handle. */
RUEDA_API int rueda_poll(int64_t handle);
/* Waits at most timeout_s seconds. Negative: until the operation ends; the engine ends every operation when a
 * peer is lost. Returns the status of the operation, or RUEDA_TIMEOUT if it is still pending. */
RUEDA_API int rueda_wait(int64_t handle, double timeout_s);
/* Makes a stream of a device wait: what is enqueued on stream after this call sees the result.
 *
 * An operation in device memory is launched, and ends on the device later. This function blocks until the
 * operation is launched, and makes the stream wait for its end. In host memory there is nothing that a stream
 * could wait for: this function blocks until the operation has ended, as rueda_wait does, and ignores stream.
 *
 * stream: a handle of the device's runtime, such as a cudaStream_t; NULL = its default stream. timeout_s: as
 * rueda_wait. Returns RUEDA_OK, the status of an operation that has failed, RUEDA_TIMEOUT if it is not
 * launched (in host memory: has not ended) yet, or the reason why the device does not take the stream. If the
 * operation fails on the device later, rueda_wait returns its status.
 *
 * The handle stays valid until rueda_release. The buffers stay borrowed until the operation has ended on the
 * device; in the order of stream, they may be written or freed from now on. */
RUEDA_API int rueda_wait_on_stream(int64_t handle, void* stream, double timeout_s);
/* rueda_wait_on_stream for several operations, one after the other, until one of them gives another status
 * than RUEDA_OK, which is returned. The stream waits once for operations that were launched together. *ended:
 * how many have given RUEDA_OK. */
RUEDA_API int rueda_wait_all_on_stream(const int64_t* handles, int32_t count, void* stream, double timeout_s,
                                       int32_t* ended);

/* Calls done(argument) once when the operation has ended, or was launched on a device: on the engine thread,
 * or before this returns if that has already happened. The callback must be short and must not wait or shut
 * down; it may submit, fetch results, release, and call rueda_wait_on_stream, which then returns at once. It
 * is called even if the handle is released meanwhile. */
RUEDA_API int rueda_on_done(int64_t handle, void (*done)(void* argument), void* argument);

typedef struct rueda_result_info {
  uint32_t struct_size;
  int32_t ndim;
  const int64_t* shape;
  void* data; /* output as given, or allocated by the engine */
  uint64_t bytes;
  const int32_t* received_splits; /* alltoall: rows from each rank of the set */
  int32_t split_count;
  int32_t last_joined_rank; /* join: world rank that joined last */
  int64_t tag;              /* join: the largest tag */
} rueda_result_info;

/* The result of an operation that has succeeded, or was launched on a device: its shape is known then, and
 * data may be read after rueda_wait, or on a stream after rueda_wait_on_stream. Pointers are valid until
 * rueda_release or rueda_shutdown; data that rueda_detach took is valid until rueda_free. */
RUEDA_API int rueda_result(int64_t handle, int32_t index, rueda_result_info* info);
/* Takes ownership of the data that the engine allocated for one result, in memory of input's kind; free it
 * with rueda_free, which waits for the device if it is memory of one. NULL if there is none. */
RUEDA_API void* rueda_detach(int64_t handle, int32_t index);
RUEDA_API void rueda_free(void* data);
/* Releases the handle. A pending operation goes on, and its buffers stay borrowed until it ends. */
RUEDA_API void rueda_release(int64_t handle);
/* The same for several. */
RUEDA_API void rueda_release_all(const int64_t* handles, int32_t count);
/* The error of a failed operation, as one sentence. Valid until the next call of this thread. */
RUEDA_API const char* rueda_error(int64_t handle);

/* ---- memory ---- */

/* A shared buffer: memory that all ranks of this host map. An allreduce of shared buffers copies nothing:
 * every input is read once and every output written once. The buffer is aligned to at least 64 bytes, and its
 * contents are unspecified. Returns NULL and sets rueda_last_error() if RUEDA_ARENA_BYTES of address space
 * are used up or shared memory is not available. Any thread, also before rueda_init. Shared buffers survive
 * rueda_shutdown. A child of fork() has a private copy of its parent's shared buffers. */
RUEDA_API void* rueda_alloc(size_t bytes);
/* Releases a shared buffer. No operation may use it any more. NULL is allowed. */
RUEDA_API void rueda_release_memory(void* buffer);
/* 1 if the address lies in memory from which shared buffers are allocated. */
RUEDA_API int rueda_is_shared_buffer(const void* address);
/* Returns the pages of released shared buffers to the system. Otherwise they are kept for the next ones. */
RUEDA_API void rueda_trim_memory(void);

/* ---- memory of devices ---- */

/* For frameworks that have no such functions of their own. They use the driver of the device's maker, and
 * work before rueda_init too. Where there is no driver, or it refuses, they return RUEDA_UNSUPPORTED or
 * another reason. device: an index as this process sees devices. stream: as for rueda_wait_on_stream. Any
 * thread; the device that is current in the thread stays so. */

/* The device whose memory an address lies in; -1: none. */
RUEDA_API int rueda_device_of(const void* address);
/* The device of a stream; -1: it is none. */
RUEDA_API int rueda_device_of_stream(void* stream);
/* Memory of a device, aligned to at least 256 bytes; 0 bytes are allowed. */
RUEDA_API int rueda_alloc_on_device(int32_t device, size_t bytes, void** memory);
/* Releases it once the work that was enqueued before has run. NULL is allowed. */
RUEDA_API void rueda_release_on_device(int32_t device, void* memory);
/* Enqueues a copy within the memory of a device. */
RUEDA_API int rueda_copy_on_stream(int32_t device, void* stream, void* to, const void* from, size_t bytes);
/* An event for rueda_request.ready. It may be recorded again, or released, once the operations that were
 * submitted with it have been launched or have ended. A stream that is captured into a graph is refused. */
RUEDA_API int rueda_make_event(int32_t device, void** event);
RUEDA_API int rueda_record_event(int32_t device, void* event, void* stream);
RUEDA_API void rueda_release_event(int32_t device, void* event);
/* What is enqueued on `after` from now on runs after what is enqueued on `before` so far. */
RUEDA_API int rueda_order_streams(int32_t device, void* before, void* after);
/* rueda_release once stream has come here: what is enqueued before may use the results that the engine
 * allocated. */
RUEDA_API int rueda_release_on_stream(int64_t handle, int32_t device, void* stream);

/* ---- log and timeline ---- */

/* Writes a record to the engine's log. level: 0 trace, 1 debug, 2 info, 3 warning, 4 error, 5 fatal. */
RUEDA_API void rueda_log(int level, const char* text);

/* Each rank writes its records to path.rank<N>.rec, which `rueda timeline` reads, and rank 0 draws those
 * that it sees, of all ranks, as the timeline at path. A path that this process has written last goes on:
 * nothing is lost. The file is Chrome's JSON; RUEDA_INVALID_ARGUMENT if its name says .pftrace or
 * .perfetto-trace. Where rank 0 cannot write path, it records all the same, and returns RUEDA_UNAVAILABLE. */
RUEDA_API int rueda_start_timeline(const char* path, int mark_cycles);
/* For all ranks: rank 0 waits until those whose records it sees have stopped too, at most 5 seconds. */
RUEDA_API int rueda_stop_timeline(void);
/* A step of training has ended. Front ends call this after each update of the parameters, so that summaries
 * can divide time into steps. source: any number that tells optimizers apart; of several in use at the same
 * time, the first counts; one that follows when another has gone goes on with the count.
 * Costs less than a microsecond, does nothing before init, and may be called from any thread. */
RUEDA_API void rueda_mark_step(int64_t source);
/* The program has just waited so many nanoseconds for the next batch of its input. */
RUEDA_API void rueda_mark_input(int64_t waited_ns);
/* Writes the flight record of this rank: its collectives of the last minute (RUEDA_FLIGHT_RECORD_BYTES). */
RUEDA_API int rueda_write_flight_record(const char* path);
/* The program waits for its next batch from now on, until rueda_mark_input(): others that wait for this rank
 * are told so. rueda_mark_input(-1) ends such a wait without recording it. */
RUEDA_API void rueda_begin_input(void);

/* ---- stacks ---- */

/* The stacks of all threads of this process as JSON, while they run or hang: native ones, and Python's where
 * rueda_set_python_stacks was called. Blocks for about a second at most. A caller in Python must not hold the
 * interpreter's lock. The text is valid until this thread next calls a function that returns a text. */
RUEDA_API const char* rueda_stacks(void);

/* How a front end of Python lets the library read its stacks. The front end keeps all of this until the
 * process ends. */
typedef struct rueda_python_stacks {
  uint32_t struct_size;
  int32_t signal;  /* rueda_free_signal(), registered with faulthandler for without_lock_fd; 0 = none */
  int32_t ask_fd;  /* for each byte that arrives from here, a thread writes the stacks to with_lock_fd, */
  int32_t done_fd; /* and then a byte that arrives here */
  int32_t with_lock_fd;    /* both are regular files, such as memfds */
  int32_t without_lock_fd; /* */
  uint64_t thread;         /* pthread_self() of that thread; its own stack is left out */
} rueda_python_stacks;
RUEDA_API int rueda_set_python_stacks(const rueda_python_stacks* source);
/* A real-time signal without a handler; 0 if there is none. */
RUEDA_API int rueda_free_signal(void);

/* ---- metrics ---- */

/* Counters, gauges and histograms of this process since it started, as JSON: {"rueda_calls_total": {"type":
 * "counter", "help": …, "samples": [{"suffix": "", "labels": {"collective": "allreduce"}, "value": 3}]}}. The
 * text is valid until this thread next calls a function that returns a text. */
RUEDA_API const char* rueda_metrics(void);

#ifdef __cplusplus
}
#endif

#endif /* RUEDA_RUEDA_H_ */

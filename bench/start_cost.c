// What a prepared operation costs its caller: microseconds of the calling thread for rueda_start, rueda_wait
// and rueda_release, each the median of 300 steps of 200 tensors.
//
//     cc -O2 -Iinclude bench/start_cost.c -Lbuild/release -lrueda -o build/start_cost
//
//     LD_LIBRARY_PATH=build/release build/release/bin/rueda run -np 2 build/start_cost
#include <rueda/rueda.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { kTensors = 200, kElements = 64, kWarmUp = 100, kSteps = 300 };

static float data[kTensors][kElements];
static rueda_start_item items[kTensors];

static void check(int status) {
  if (status == RUEDA_OK) return;
  fprintf(stderr, "start_cost: %s\n", rueda_last_error());
  exit(1);
}

static double thread_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec * 1e-3;
}

static int compare(const void* a, const void* b) {
  const double left = *(const double*)a, right = *(const double*)b;
  return (left > right) - (left < right);
}

static double median(double* values) {
  qsort(values, kSteps, sizeof *values, compare);
  return values[kSteps / 2] / kTensors;
}

static void prepare(void) {
  const int64_t shape[] = {kElements};
  for (int i = 0; i < kTensors; ++i) {
    char name[32];
    snprintf(name, sizeof name, "layer.%d.weight", i);
    const rueda_request request = {.struct_size = sizeof request,
                                   .what = RUEDA_ALLREDUCE,
                                   .dtype = RUEDA_FLOAT32,
                                   .op = RUEDA_SUM,
                                   .name = name,
                                   .prescale = 1,
                                   .postscale = 1,
                                   .ndim = 1,
                                   .device = -1,
                                   .shape = shape};
    check(rueda_prepare(&request, &items[i].prepared));
    items[i].input = items[i].output = data[i];
  }
}

int main(void) {
  static double start[kSteps], wait[kSteps], release[kSteps];
  check(rueda_init(NULL));
  prepare();
  for (int step = 0; step < kWarmUp + kSteps; ++step) {
    const double begin = thread_us();
    check(rueda_start(items, kTensors));
    const double started = thread_us();
    for (int i = 0; i < kTensors; ++i) check(rueda_wait(items[i].handle, -1));
    const double ended = thread_us();
    for (int i = 0; i < kTensors; ++i) rueda_release(items[i].handle);
    if (step < kWarmUp) continue;
    start[step - kWarmUp] = started - begin;
    wait[step - kWarmUp] = ended - started;
    release[step - kWarmUp] = thread_us() - ended;
  }
  printf("a tensor: start %.3f us, wait %.3f us, release %.3f us\n", median(start), median(wait),
         median(release));
  rueda_shutdown();
  return 0;
}

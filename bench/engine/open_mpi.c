/* All-reduces of Open MPI, which `etloop bench collective` is compared with: pairs of bytes and iterations.

   Rank 0 prints a line for each pair: bytes, the ns that the slowest rank took for all iterations, and the median over
   iterations of the ns of one on its slowest rank. One all-reduce that connects the ranks goes before and is not counted. */
#include <errno.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long long monotonic_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long number(const char* word, long most) {
  char* end = NULL;
  errno = 0;
  const long value = strtol(word, &end, 10);
  if (errno != 0 || *end != '\0' || value < 1 || value > most) {
    fprintf(stderr, "open_mpi: expected a number from 1 to %ld, found \"%s\"\n", most, word);
    MPI_Abort(MPI_COMM_WORLD, 2);
  }
  return value;
}

static int by_value(const void* left, const void* right) {
  const long long a = *(const long long*)left, b = *(const long long*)right;
  return (a > b) - (a < b);
}

int main(int words, char** word) {
  MPI_Init(&words, &word);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (int at = 1; at + 1 < words; at += 2) {
    const long message_bytes = number(word[at], 1L << 32);
    const long iterations = number(word[at + 1], 1000000000L);
    const int count = (int)(message_bytes / (long)sizeof(float));
    float* from = calloc((size_t)count, sizeof(float));
    float* to = calloc((size_t)count, sizeof(float));
    long long* times_ns = calloc((size_t)iterations, sizeof(long long));
    long long* slowest_ns = calloc((size_t)iterations, sizeof(long long));
    if (from == NULL || to == NULL || times_ns == NULL || slowest_ns == NULL) {
      fprintf(stderr, "open_mpi: no memory for %ld bytes and %ld times twice\n", message_bytes, iterations);
      MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    long long begun_ns = monotonic_ns();
    const long long start_ns = begun_ns;
    for (long iteration = 0; iteration < iterations; ++iteration) {
      MPI_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      const long long ended_ns = monotonic_ns();
      times_ns[iteration] = ended_ns - begun_ns;
      begun_ns = ended_ns;
    }
    const long long own_ns = begun_ns - start_ns;
    long long longest_ns = 0;
    MPI_Reduce(&own_ns, &longest_ns, 1, MPI_LONG_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(times_ns, slowest_ns, (int)iterations, MPI_LONG_LONG, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
      qsort(slowest_ns, (size_t)iterations, sizeof(long long), by_value);
      printf("%ld %lld %lld\n", message_bytes, longest_ns, slowest_ns[(iterations - 1) / 2]);
    }
    free(slowest_ns);
    free(times_ns);
    free(from);
    free(to);
  }
  MPI_Finalize();
  return 0;
}

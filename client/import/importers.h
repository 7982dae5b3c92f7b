// The importers: each turns one kind of source file into a federation directory
// and returns the content of its federation.json. Errors name the file, the
// client and the remedy, and leave nothing behind.
#ifndef LEEWAY_CLIENT_IMPORT_IMPORTERS_H_
#define LEEWAY_CLIENT_IMPORT_IMPORTERS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/import/federation.h"
#include "client/import/federation_writer.h"
#include "client/import/sequences.h"

namespace leeway {

// LEAF JSON: {"users", "num_samples", "user_data": {user: {"x", "y"}}}, plain or
// gzipped, many files. One file is in memory at a time.
struct LeafOptions {
  WriterOptions writer;
  std::string source;       // holds train/ and perhaps test/, or the files themselves
  std::string test;         // directory of test files, when not source/test
  uint64_t vocabulary = 0;  // > 0: x are token ids below it, written as int32
};
absl::StatusOr<Json> ImportLeaf(const LeafOptions& options);

// TensorFlow Federated HDF5: /examples/<client>/<feature>. A feature of numbers
// needs a label feature; a feature of strings becomes next-token sequences.
struct TffOptions {
  WriterOptions writer;
  std::string source;   // the file of training data
  std::string test;     // the file of test data; may be empty
  std::string feature;  // empty: the first of pixels, image, snippets, tokens
  std::string label;    // empty: the first of label, y
  SequenceOptions sequences;
};
absl::StatusOr<Json> ImportTff(const TffOptions& options);

// IDX images and labels (MNIST and its kin), as the one client "all", or one client per
// value of a column of the label file (QMNIST's writers). Pixels become float32 in [0, 1].
struct IdxOptions {
  WriterOptions writer;
  std::string images;
  std::string labels;
  std::string test_images;
  std::string test_labels;
  uint32_t label_column = 0;              // of a label file of two dimensions: the class
  std::optional<uint32_t> client_column;  // and the client; none: all are one client
  bool central_test = false;              // test images are the evaluator's
};
absl::StatusOr<Json> ImportIdx(const IdxOptions& options);

// CSV: one file per client, or a column that names the client. Columns are named
// by the header, by `columns`, or by their number from 0.
struct CsvOptions {
  WriterOptions writer;
  std::vector<std::string> sources;  // files or directories of files
  std::string strip_prefix;          // taken off the file names to get client names
  std::string client_column;         // empty: the file is the client
  std::string client_from;           // column of a code that the client is derived from ...
  std::string map;                   // ... by this file (see client_map.h),
  uint32_t client_prefix = 0;        // ... or as its first so many characters
  char delimiter = ',';
  bool header = true;
  std::vector<std::string> columns;  // names, when there is no header
  std::vector<std::string> missing = {"?"};
  std::vector<std::string> drop_columns;
  std::vector<std::string> one_hot;
  std::string label;
  std::optional<double> label_positive_above;  // the label is 1 above it, else 0
  bool regression = false;                     // keep the label a real number
  std::string scale = "none";                  // or "standard"
  double test_fraction = 0;
  uint64_t seed = 1;
};
absl::StatusOr<Json> ImportCsv(const CsvOptions& options);

// Sentences by user as TSV (user_id, creation_date, type, source_id, tokens), for
// next-word prediction. The last sentences of each user by date are its test part.
struct TextOptions {
  WriterOptions writer;
  std::string source;
  uint64_t min_sentences = 20;
  double test_fraction = 0.1;
  SequenceOptions sequences;
};
absl::StatusOr<Json> ImportText(const TextOptions& options);

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_IMPORTERS_H_

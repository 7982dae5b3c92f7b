// How large the numbers in each column of a table are, and what that does to
// training: columns of very different sizes make the loss badly conditioned. Sums
// over rows; merging clients is adding their rows. Not thread-safe.
#ifndef LEEWAY_CLIENT_IMPORT_COLUMN_SCALES_H_
#define LEEWAY_CLIENT_IMPORT_COLUMN_SCALES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "client/import/rows.h"

namespace leeway {

class ColumnScales {
 public:
  // Adds rows of a table: real numbers or int64 with one dimension. Everything else
  // (images, tokens, bytes, which models divide by 255) is left alone.
  void Add(const Rows& rows);

  // What is wrong with the scales, naming the columns, and the remedy; empty if
  // nothing is. `names` are the columns' names; columns without one are named by
  // their number from 0.
  std::string Advice(const std::vector<std::string>& names) const;

  // A lower bound of the condition number of linear regression on these columns and an
  // intercept, which is a column of ones: the largest eigenvalue of X'X/n is at least its
  // largest diagonal entry, the smallest at most the smallest one. Columns of zeros do not
  // count.
  double ConditionAtLeast() const;

 private:
  struct Column {
    double squares = 0;     // sum of squares
    double first = 0;       // value in the first row
    bool constant = true;   // every row has it
    bool indicator = true;  // every value is 0 or 1
  };
  template <typename T>
  void AddRows(const Rows& rows);
  double MeanSquare(const Column& column) const;
  // The bound that would be left if columns of numbers were standardised and
  // constant ones left out.
  double ConditionAfterScaling() const;
  // Whether giving this column the common scale would help.
  bool OutOfScale(const Column& column) const;

  uint64_t rows_ = 0;
  std::vector<Column> columns_;
};

}  // namespace leeway

#endif  // LEEWAY_CLIENT_IMPORT_COLUMN_SCALES_H_

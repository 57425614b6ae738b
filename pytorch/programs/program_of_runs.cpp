#include "programs/program_of_runs.h"

#include "programs/writer.h"

namespace weft::programs {
namespace {

std::vector<std::unique_ptr<ImportedRun>> imported(const std::vector<SourceRun>& runs, ImportedRun::Way& way) try {
  std::vector<std::unique_ptr<ImportedRun>> found;
  for (const SourceRun& run : runs)
    found.push_back(std::make_unique<ImportedRun>(*run.recording, run.free, way, run.callbacks));
  return found;
} catch (const NeedsFunctionalError&) {
  if (way.functional) throw;
  way.functional = true;
  return imported(runs, way);
}

}  // namespace

RunsProgram program_of_runs(const std::vector<SourceRun>& runs, const record::SizeFit& sizes,
                            const ExternDerivative& derivative, Whole whole, const Noted* noted,
                            ComplexEnds complex_ends, Unread unread) {
  ImportedRun::Way way;
  if (noted != nullptr) way.whole = noted->whole;
  while (true) {
    const std::vector<std::unique_ptr<ImportedRun>> all = imported(runs, way);
    record::SizeFit fit = sizes;
    // A call checks guesses by the sizes in its record. The sizes within decompositions aren't there, so nothing would
    // check a guess about them.
    fit.stop_guessing();
    MatchedRuns matched(all, fit);
    auto stays_whole = [&] {
      const bool may = noted == nullptr || noted->may_stay.contains(matched.blamed());
      return whole == Whole::kWhereSizesDecide && may && !matched.blamed().empty() &&
             way.whole.insert(matched.blamed()).second;
    };
    try {
      matched.match();
      return Writer(matched, derivative, noted != nullptr, complex_ends, unread).write();
    } catch (const Mismatch&) {
      if (!stays_whole()) throw;
    } catch (const record::UnsupportedError&) {
      if (!stays_whole()) throw;
    }
  }
}

}  // namespace weft::programs

// A plugin of clang-tidy's that has its checks look at our own declarations only. What they find in the headers of
// others it throws away in any case, but only after a search that takes half of its time. (From LLVM 22 on it does so
// itself.) Those of a header that has a source file beside it, as x.h has x.cpp, are looked at once, with that file.
// Nor are bodies of others' function templates made for the types that a file calls them with, which is half of the
// time that is left: what is called is known by the declaration. Those that a type or a constant depends on still are.
// scripts/lint.sh builds and loads it.

#include <clang/AST/ASTConsumer.h>
#include <clang/AST/ASTContext.h>
#include <clang/Basic/FileManager.h>
#include <clang/Basic/SourceManager.h>
#include <clang/Frontend/FrontendPluginRegistry.h>
#include <clang/Sema/Sema.h>
#include <clang/Sema/SemaConsumer.h>
#include <llvm/ADT/SmallString.h>
#include <llvm/Support/Path.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

namespace {

class OwnCode : public clang::SemaConsumer {
 public:
  void InitializeSema(clang::Sema& sema) override { sema_ = &sema; }
  void ForgetSema() override { sema_ = nullptr; }

  bool HandleTopLevelDecl(clang::DeclGroupRef) override {
    if (sema_ == nullptr) return true;  // a precompiled header's
    const clang::SourceManager& sources = sema_->getSourceManager();
    const auto is_others_function = [&sources](const auto& use) {
      return llvm::isa<clang::FunctionDecl>(use.first) && sources.isInSystemHeader(use.first->getLocation());
    };
    std::erase_if(sema_->PendingInstantiations, is_others_function);
    sema_->UndefinedButUsed.remove_if(is_others_function);  // or it is an error that they have no body
    return true;
  }

  void HandleTranslationUnit(clang::ASTContext& context) override {
    const clang::SourceManager& sources = context.getSourceManager();
    std::map<clang::FileID, bool> files;
    std::vector<clang::Decl*> own;
    for (clang::Decl* decl : context.getTranslationUnitDecl()->decls()) {
      const clang::SourceLocation location = sources.getExpansionLoc(decl->getLocation());
      if (sources.isInSystemHeader(location)) continue;
      const clang::FileID file = sources.getFileID(location);
      const auto [found, is_new] = files.try_emplace(file);
      if (is_new) found->second = is_looked_at_here(sources, file);
      if (found->second) own.push_back(decl);
    }
    context.setTraversalScope(own);
  }

 private:
  clang::Sema* sema_ = nullptr;

  /// Whether the file is a source file, the header of one that is read too, or a header without a source file.
  static bool is_looked_at_here(const clang::SourceManager& sources, clang::FileID file) {
    const auto entry = sources.getFileEntryRefForID(file);
    if (!entry) return true;
    llvm::SmallString<256> source(entry->getName());
    llvm::sys::path::replace_extension(source, "cpp");
    const auto beside = sources.getFileManager().getOptionalFileRef(source);
    return !beside || sources.translateFile(*beside).isValid();
  }
};

/// Runs before what clang-tidy does.
class OwnCodeAction : public clang::PluginASTAction {
 public:
  std::unique_ptr<clang::ASTConsumer> CreateASTConsumer(clang::CompilerInstance&, llvm::StringRef) override {
    return std::make_unique<OwnCode>();
  }
  bool ParseArgs(const clang::CompilerInstance&, const std::vector<std::string>&) override { return true; }
  ActionType getActionType() override { return AddBeforeMainAction; }
};

clang::FrontendPluginRegistry::Add<OwnCodeAction> add("own-code", "checks look at our own declarations only");

}  // namespace

"""As a program, the command ``digits``, which reads the list of a model store for as long as a slow test takes."""

if __name__ == "__main__":
    from digits.cli.main import main, patch_standard_library

    patch_standard_library()
    from digits.data import model_store

    model_store.MAX_LIST_SECONDS = 600.0
    main()

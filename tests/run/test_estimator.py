"""The scikit-learn estimator, by scikit-learn's own checks and by other routes to the same features."""

from __future__ import annotations

import copy
import io
import os
import pickle
import signal
import subprocess
import sys
import threading

import joblib
import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

import frossl
from frossl import FroSSLEncoder
from frossl.errors import InputError
from tests.support.images import write_image

SMALL = {"network.stages": 1, "network.projector_hidden": 16, "network.projector_out": 8}


def tiny(**more) -> FroSSLEncoder:
    """One stage of an eighth of a ResNet-18: 8 features, milliseconds a step."""
    return FroSSLEncoder(**{"width": 0.125, "epochs": 1, "batch_size": 16, "settings": SMALL, **more})


@parametrize_with_checks([tiny()])
def test_scikit_learn_has_no_complaint(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:X (does not have valid|has) feature names")  # as the checks have it
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_dataframe_column_names_consistency,
        estimator_checks.check_get_feature_names_out_error,
        estimator_checks.check_set_output_transform,
        estimator_checks.check_set_output_transform_pandas,
        estimator_checks.check_transformer_get_feature_names_out,
        estimator_checks.check_transformer_get_feature_names_out_pandas,
    ],
    ids=lambda check: check.__name__,
)
def test_nor_of_names_and_frames(check):
    """Checks that scikit-learn keeps for its own estimators."""
    check("FroSSLEncoder", tiny())


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:180], y[:180]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    """Color images of 16 pixels: as PNG files, and the same as an array."""
    folder = tmp_path_factory.mktemp("pictures")
    paths = [folder / f"{i:02}.png" for i in range(24)]
    for i, path in enumerate(paths):
        write_image(path, width=16, height=16, seed=i)
    return folder, paths, np.stack([np.asarray(Image.open(path)) for path in paths])


@pytest.fixture(scope="module")
def fitted(pictures):
    """On the array."""
    return tiny().fit(pictures[2])


def pipeline(**more):
    return make_pipeline(tiny(**more), LogisticRegression(max_iter=500))


class TestWithinScikitLearn:
    def test_cross_validation_learns_from_each_fold_alone(self, digits):
        X, y = digits
        folds, by_hand = StratifiedKFold(3), []
        for train, test in folds.split(X, y):
            encoder = tiny().fit(X[train])
            head = LogisticRegression(max_iter=500).fit(encoder.transform(X[train]), y[train])
            by_hand.append(head.score(encoder.transform(X[test]), y[test]))
        np.testing.assert_array_equal(cross_val_score(pipeline(), X, y, cv=folds), by_hand)
        with joblib.parallel_backend("threading", n_jobs=3):
            np.testing.assert_array_equal(cross_val_score(pipeline(), X, y, cv=folds), by_hand)

    def test_a_grid_search_chooses_its_parameters(self, digits):
        X, y = digits
        grid = {"frosslencoder__width": np.array([0.125, 0.5]), "frosslencoder__method": ["frossl", "vicreg"]}
        search = GridSearchCV(pipeline(), grid, cv=2, error_score="raise").fit(X, y)
        chosen = search.best_params_
        best = search.best_estimator_.named_steps["frosslencoder"]
        assert best.n_features_out_ == 64 * chosen["frosslencoder__width"]
        assert best.config_.objective.method == chosen["frosslencoder__method"]
        again = pipeline().set_params(**chosen).fit(X, y)
        np.testing.assert_array_equal(search.predict_proba(X), again.predict_proba(X))
        assert len(set(search.cv_results_["mean_test_score"])) > 1

    def test_a_pickled_pipeline_tells_the_same_in_another_process(self, digits, tmp_path):
        X, y = digits
        whole = pipeline().fit(X, y)
        (tmp_path / "pipeline.pickle").write_bytes(pickle.dumps(whole))
        np.save(tmp_path / "X.npy", X)
        code = (
            "import pickle, numpy as np\n"
            "whole = pickle.load(open('pipeline.pickle', 'rb'))\n"
            "np.save('told.npy', whole.predict_proba(np.load('X.npy')))"
        )
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
        np.testing.assert_array_equal(np.load(tmp_path / "told.npy"), whole.predict_proba(X))

    def test_paths_are_indexed_like_rows(self, pictures):
        _, paths, array = pictures
        y = np.arange(len(paths)) % 2
        of_paths, of_array = (cross_val_score(pipeline(), X, y, cv=2) for X in (paths, array))
        np.testing.assert_array_equal(of_paths, of_array)

    def test_a_clone_is_unfitted_and_fits_to_the_same(self, fitted, pictures):
        other = clone(fitted)
        with pytest.raises(NotFittedError):
            other.transform(pictures[2])
        assert other.get_params() == fitted.get_params()
        again = other.fit_transform(pictures[2])
        np.testing.assert_array_equal(again, fitted.transform(pictures[2]))

    def test_a_pickle_names_no_class_of_torch(self, fitted, pictures):
        named = set()

        class Listening(pickle.Unpickler):
            def find_class(self, module, name):
                named.add(module.partition(".")[0])
                return super().find_class(module, name)

        again = Listening(io.BytesIO(pickle.dumps(fitted))).load()
        assert named == {"frossl"}
        np.testing.assert_array_equal(again.transform(pictures[2]), fitted.transform(pictures[2]))
        np.testing.assert_array_equal(
            copy.deepcopy(fitted).transform(pictures[2]), fitted.transform(pictures[2])
        )


class TestImages:
    def test_files_and_arrays_of_the_same_images_have_the_same_features(self, fitted, pictures):
        folder, paths, array = pictures
        wanted = fitted.transform(array)
        assert wanted.dtype == np.float32
        assert np.ptp(wanted, axis=0).max() > 0
        for X in (paths, [str(path) for path in paths], np.array(paths, dtype=object), folder, str(folder)):
            np.testing.assert_array_equal(fitted.transform(X), wanted)
        for X in (paths, folder):
            np.testing.assert_array_equal(tiny().fit(X).transform(X), wanted)
        some = [paths[5], paths[2], paths[5]]
        np.testing.assert_allclose(fitted.transform(some), wanted[[5, 2, 5]], rtol=1e-5, atol=1e-6)

    def test_every_layout_of_an_array_is_the_same_image(self, fitted, pictures):
        array = pictures[2]
        wanted, first = fitted.transform(array), array.transpose(0, 3, 1, 2)
        np.testing.assert_array_equal(fitted.transform(array.reshape(24, -1)), wanted)
        for X, shape in (
            (first, None),
            (array.reshape(24, -1), (16, 16, 3)),
            (first.reshape(24, -1), (3, 16, 16)),
        ):
            np.testing.assert_array_equal(tiny(image_shape=shape).fit_transform(X), wanted)

    def test_rows_are_squares_and_their_range_is_that_of_the_fit(self, digits):
        X, _ = digits
        encoder = tiny().fit(X)
        assert (encoder.image_shape_, encoder.value_range_, encoder.n_features_in_) == ((8, 8), (0, 16), 64)
        wanted = encoder.transform(X)
        shades = np.rint(X * 255 / 16).astype(np.uint8).reshape(-1, 8, 8)
        np.testing.assert_array_equal(tiny().fit_transform(shades), wanted)
        for same in (10 * X - 3, X.astype(np.float32), X.astype(int)):
            np.testing.assert_array_equal(tiny().fit_transform(same), wanted)
        beyond = np.where(X == 16, 99, X)
        np.testing.assert_array_equal(encoder.transform(beyond), wanted)

    def test_what_a_row_lacks_to_a_square_is_black(self):
        rows = np.random.default_rng(0).integers(0, 256, (20, 18), dtype=np.uint8)
        squares = np.zeros((20, 25), np.uint8)
        squares[:, :18] = rows
        np.testing.assert_array_equal(tiny().fit_transform(rows), tiny().fit_transform(squares))

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (np.zeros(20), "Reshape your data"),
            (np.full((4, 9), np.nan), "NaN"),
            (np.zeros((4, 9), complex), "Complex data not supported"),
            (np.zeros((4, 3 * 16 * 16)), r"image_shape=\(16, 16, 3\)"),
            (np.zeros((4, 2, 8, 8, 3)), r"give \(H, W\)"),
            (np.zeros((4, 0, 8)), r"give \(H, W\)"),
            (["nowhere.png", "nor/here.png"], "there is no file 'nowhere.png'"),
            ([], "Expected 2D array"),
        ],
    )
    def test_what_is_no_image_is_refused(self, X, message):
        with pytest.raises(ValueError, match=message):
            tiny().fit(X)

    def test_a_shape_that_does_not_fit_is_refused(self, fitted, pictures):
        array = pictures[2]
        for shape in ((16, 16), (16,), 16, (16, 16, -3), "ab"):
            with pytest.raises(InputError, match="shape"):
                tiny(image_shape=shape).fit(array.reshape(24, -1))
        with pytest.raises(InputError, match="is expected"):
            tiny(image_shape=(8, 8, 3)).fit(array)
        with pytest.raises(ValueError, match="expecting 768 features"):
            fitted.transform(array[:, :8])
        with pytest.raises(InputError, match="is expected"):
            fitted.transform(array.transpose(0, 3, 1, 2))

    def test_another_kind_of_numbers_than_in_the_fit_is_refused(self, fitted, pictures, digits):
        with pytest.raises(InputError, match="float64, where the fit had uint8"):
            fitted.transform(pictures[2] / 255)
        of_floats = tiny().fit(pictures[2] / 255)
        with pytest.raises(InputError, match="uint8, where the fit had other numbers"):
            of_floats.transform(pictures[2])
        with pytest.raises(InputError, match="3 channels, where the fit had 1"):
            tiny().fit(digits[0]).transform(pictures[1])

    def test_a_file_that_cannot_be_read_is_named(self, fitted, pictures, tmp_path):
        torn = tmp_path / "torn.png"
        torn.write_bytes(pictures[1][0].read_bytes()[:50])
        with pytest.raises(InputError, match=r"torn\.png' cannot be read"):
            fitted.transform([pictures[1][0], torn])
        with pytest.raises(InputError, match="at least two"):
            tiny().fit([torn])


class TestTraining:
    def test_the_encoder_is_the_one_that_pretrain_leaves(self, fitted, pictures, tmp_path):
        folder, _, array = pictures
        run = frossl.pretrain(
            folder, out=tmp_path / "run", width=0.125, epochs=1, batch_size=16, settings=SMALL, quiet=True
        )
        images = torch.from_numpy(array).permute(0, 3, 1, 2).contiguous()
        with torch.no_grad():
            features = run.encoder().ready_on("cpu")(images)
        np.testing.assert_array_equal(features.numpy(), fitted.transform(array))

    def test_the_seed_and_nothing_else_decides(self, pictures):
        array = pictures[2]
        before = torch.get_rng_state(), np.random.get_state()[1].tolist()
        one, same, other = (
            tiny(random_state=state).fit_transform(array)
            for state in (np.random.RandomState(3), np.random.RandomState(3), None)
        )
        np.testing.assert_array_equal(one, same)
        assert not np.array_equal(one, other)
        pickle.loads(pickle.dumps(tiny().fit(array)))
        assert torch.equal(before[0], torch.get_rng_state())
        assert before[1] == np.random.get_state()[1].tolist()

    def test_interrupting_a_fit_leaves_no_encoder(self, digits):
        encoder = tiny(epochs=100_000)
        timer = threading.Timer(2, os.kill, (os.getpid(), signal.SIGINT))
        timer.start()
        try:
            with pytest.raises(KeyboardInterrupt):
                encoder.fit(digits[0])
        finally:
            timer.cancel()
        with pytest.raises(NotFittedError):
            encoder.transform(digits[0])

    @pytest.mark.slow
    def test_learning_helps_where_labels_are_few(self):
        X, y = load_digits(return_X_y=True)

        def accuracy(features):
            """With three labels a class, the mean of 20 draws."""
            rng, draws = np.random.default_rng(0), []
            scaled = (features - features.mean(0)) / (features.std(0) + 1e-6)
            for _ in range(20):
                few = np.concatenate([rng.permutation(np.flatnonzero(y == c))[:3] for c in range(10)])
                rest = np.setdiff1d(np.arange(len(y)), few)
                head = LogisticRegression(C=0.1, max_iter=500).fit(scaled[few], y[few])
                draws.append(head.score(scaled[rest], y[rest]))
            return np.mean(draws)

        # no flip: a mirrored 2 is none
        view = {"size": 8, "count": 2, "scale": [0.4, 1.0], "jitter": 0.8, "gray": 0.2}
        settings = {"network.stages": 2, "views": [view]}
        trained = accuracy(FroSSLEncoder(epochs=30, settings=settings).fit_transform(X))
        untrained = accuracy(FroSSLEncoder(epochs=1, lr=1e-9, settings=settings).fit_transform(X))
        assert trained > untrained + 0.1
        assert trained > accuracy(X) + 0.03


class TestSaved:
    def test_what_is_loaded_is_what_was_saved(self, pictures, fitted, digits, tmp_path, monkeypatch):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(digits[0], columns=[f"pixel {i}" for i in range(64)])
        of_frame = tiny(image_shape=(8, 8), lr=np.float64(0.01), random_state=np.random.RandomState(0))
        of_frame.fit(frame)
        for encoder, X in ((fitted, pictures[2]), (of_frame, frame)):
            place = tmp_path / f"saved-{id(encoder)}"
            encoder.save(place)
            encoder.save(place)  # over itself
            with monkeypatch.context() as forbidden:
                for module in (pickle, torch):
                    forbidden.setattr(module, "load", None)
                forbidden.setattr(pickle, "loads", None)
                forbidden.setattr(pickle, "Unpickler", None)
                again = FroSSLEncoder.load(place)
            np.testing.assert_array_equal(again.transform(X), encoder.transform(X))
            np.testing.assert_array_equal(again.get_feature_names_out(), encoder.get_feature_names_out())
            assert again.n_features_in_ == encoder.n_features_in_
            known, wanted = again.get_params(), encoder.get_params()
            assert {**known, "random_state": 0} == {**wanted, "random_state": 0}
            np.testing.assert_array_equal(
                clone(again).fit_transform(X), encoder.transform(X), err_msg="fitted again"
            )
            assert frossl.load_encoder(place).num_features == encoder.n_features_out_
        with pytest.raises(ValueError, match="feature names should match"):
            FroSSLEncoder.load(place).transform(frame.iloc[:, ::-1])

    def test_what_cannot_be_saved_or_loaded_is_refused(self, fitted, tmp_path):
        with pytest.raises(NotFittedError):
            tiny().save(tmp_path / "unfitted")
        (tmp_path / "notes.txt").write_text("mine")
        for place in (tmp_path, tmp_path / "notes.txt"):
            with pytest.raises(InputError, match="choose another folder"):
                fitted.save(place)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]
        with pytest.raises(InputError, match="there is no run"):
            FroSSLEncoder.load(tmp_path / "nowhere")
        fitted.save(tmp_path / "saved")
        params = tmp_path / "saved" / "params.json"
        for damaged in ("{", "[]", '{"params": {"strange": 1}, "fitted": {}}'):
            params.write_text(damaged)
            with pytest.raises(InputError, match="damaged"):
                FroSSLEncoder.load(tmp_path / "saved")
        params.unlink()
        with pytest.raises(InputError, match="holds no params"):
            FroSSLEncoder.load(tmp_path / "saved")

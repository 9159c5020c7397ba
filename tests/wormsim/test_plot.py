"""Pictures: what they hold; how they look and play is checked in a browser, in tests/vpc/test_demo.py."""

import numpy as np
import pytest
from bokeh.models import ColumnDataSource, Slider

import wormsim
from wormsim import plot


@pytest.fixture(scope="module")
def worm():
    return wormsim.crawl(1, objects=wormsim.square_posts())


def test_animation_holds_every_frame_it_promises(worm):
    layout = plot.animate(worm, frames_per_second=20)
    slider = layout.select_one({"type": Slider})
    assert slider.end == pytest.approx(1.0) and slider.step == pytest.approx(0.05)
    sources = [model.data for model in layout.references() if isinstance(model, ColumnDataSource)]
    held = [np.asarray(data["values"]) for data in sources if "values" in data]
    body = next(values for values in held if values.dtype == np.float32).reshape(-1, 49, 3)
    np.testing.assert_allclose(body, worm["body"].values[::5], atol=1e-6)


def test_animation_needs_no_muscles_and_two_frames(worm):
    plot.animate(worm[["body"]])
    with pytest.raises(ValueError, match="at least two frames"):
        plot.animate(worm.isel(time=[0]))


def test_kymograph_has_the_head_at_the_top(worm):
    image = plot.kymograph(worm)
    curvature = wormsim.curvature(worm["body"].values)
    assert image.dimension_values("curvature").shape == (curvature.size,)
    assert image[0.5, 0.0] == curvature[50, 0] and image[0.5, 1.0] == curvature[50, -1]
    assert [str(dimension) for dimension in image.kdims] == ["time", "place"]

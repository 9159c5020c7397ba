"""Pictures of a run: what they hold, in which order and units."""

import holoviews as hv
import numpy as np
import pytest
import xarray as xr

import vpc
from vpc import plot
from vpc.connectome import NEURONS, find
from vpc.pictures import LANES, ORDER, TYPES, neuron_map


@pytest.fixture(scope="module")
def run():
    return vpc.Worm().simulate(seconds=1, seed=0, progress=False)


def names(overlay):
    return [curve.group for curve in overlay]


def test_everything_public_is_there():
    assert all(callable(getattr(plot, name)) for name in plot.__all__)


def test_traces_hold_the_run(run):
    overlay = plot.traces(run, ("AVAL", "RIM"))
    assert names(overlay) == ["AVAL", "RIML", "RIMR"]
    for curve in overlay:
        time, voltage = curve.dimension_values("time"), curve.dimension_values("voltage")
        np.testing.assert_allclose(time, run["time"].values)
        np.testing.assert_allclose(voltage, run["voltage"].sel(neuron=curve.group).values, rtol=1e-6)
    figure = hv.render(overlay)
    assert figure.xaxis[0].axis_label == "time (s)" and figure.yaxis[0].axis_label == "voltage (mV)"
    assert figure.legend[0].click_policy == "mute"


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("AVAL", ("AVAL",)),
        ("AVA", ("AVAL", "AVAR")),
        (("AVA", "AVAL", ("DD", "RIS")), ("AVAL", "AVAR", *(f"DD{i}" for i in range(1, 7)), "RIS")),
        ("sensory", find("sensory")),
        (["GABA"], find("GABA")),
        (iter(["RIS"]), ("RIS",)),
    ],
)
def test_traces_by_name_class_type_and_transmitter(run, asked, expected):
    assert names(plot.traces(run, asked)) == list(expected)


def test_many_traces_share_colours_and_legend_by_class(run):
    figure = hv.render(plot.traces(run, ("AVA", "DB", "VB")))
    assert [(item.label.value, len(item.renderers)) for item in figure.legend[0].items] == [("AVA", 2), ("DB", 7), ("VB", 11)]
    colours = [{r.glyph.line_color for r in item.renderers} for item in figure.legend[0].items]
    assert all(len(of_class) == 1 for of_class in colours) and len(set.union(*colours)) == 3


@pytest.mark.parametrize(("variable", "label"), [("calcium", "calcium (uM)"), ("fluorescence", "fluorescence")])
def test_other_variables_have_their_units(run, variable, label):
    assert hv.render(plot.traces(run, "AVA", variable)).yaxis[0].axis_label == label


def test_long_runs_are_thinned(run):
    long = run[["voltage"]].isel(time=np.arange(10_000) % run.sizes["time"]).assign_coords(time=np.arange(10_000) * 0.01)
    assert 600 <= len(next(iter(plot.traces(long, "RIS")))) <= 1000
    assert plot.heatmap(long).interface.shape(plot.heatmap(long), gridded=True)[1] <= 1000


def test_errors_say_what_to_do(run):
    with pytest.raises(vpc.UnknownNeuron, match="did you mean 'AVAL'"):
        plot.traces(run, "AVALL")
    with pytest.raises(ValueError, match="at least one neuron"):
        plot.traces(run, ())
    with pytest.raises(ValueError, match="run holds no 'current'; it has voltage"):
        plot.heatmap(run, "current")
    with pytest.raises(ValueError, match=r"run.isel\(sample=0\)"):
        plot.heatmap(run.expand_dims(sample=2))
    with pytest.raises(ValueError, match="chemical"):
        plot.connectome(vpc.Connectome.load(), "electrical")


def test_order_is_by_type_and_then_from_head_to_tail():
    assert sorted(ORDER) == sorted(NEURONS)
    keys = [(TYPES.index(NEURONS[name].type), NEURONS[name].position) for name in ORDER]
    assert keys == sorted(keys)


@pytest.mark.parametrize("relative", [True, False])
def test_heatmap_holds_all_neurons_in_order(run, relative):
    image = plot.heatmap(run, relative=relative)
    expected = run["voltage"].sel(neuron=list(ORDER))
    expected = (expected - expected.mean("time") if relative else expected).values.T
    held = image.dimension_values("voltage", flat=False)  # from the bottom, row 0, up
    np.testing.assert_allclose(held, expected, atol=1e-4)
    for k, name in ((0, ORDER[0]), (301, ORDER[-1])):
        assert image[0.5, k] == pytest.approx(expected[ORDER.index(name), 50], abs=1e-4)


def test_heatmap_says_what_it_shows(run):
    figure = hv.render(plot.heatmap(run))
    bar = figure.right[0]
    assert "voltage from own mean (mV)" in (bar.title, figure.title.text)
    assert bar.color_mapper.low == -bar.color_mapper.high
    tool = next(tool for tool in figure.tools if type(tool).__name__ == "HoverTool")
    assert tool.formatters["$y"].args["names"][0] == f"{ORDER[0]} (sensory)"
    assert "mV" in hv.render(plot.heatmap(run, relative=False)).right[0].title


def test_heatmap_of_a_failed_worm(run):
    failed = run[["voltage"]].where(run["time"] < 0.5)
    assert np.isfinite(hv.render(plot.heatmap(failed)).right[0].color_mapper.high)


@pytest.mark.parametrize("kind", ["chemical", "gap"])
def test_connectome_holds_every_count(kind):
    wiring = vpc.Connectome.load()
    picture = plot.connectome(wiring, kind)
    index = {name: k for k, name in enumerate(NEURONS)}
    matrix = np.zeros((302, 302), int)
    pre, post = picture.dimension_values("pre"), picture.dimension_values("post")
    matrix[[index[name] for name in pre], [index[name] for name in post]] = picture.dimension_values("count")
    np.testing.assert_array_equal(matrix, getattr(wiring, kind))
    np.testing.assert_allclose(picture.dimension_values("left") + 0.5, [ORDER.index(name) for name in post])
    np.testing.assert_allclose(picture.dimension_values("top") + 0.5, [ORDER.index(name) for name in pre])
    hv.render(picture)


def test_connectome_without_connections():
    hv.render(plot.connectome(vpc.Connectome.load().subset([])))


def test_a_map_of_neurons_shows_each_with_its_number():
    values = xr.DataArray(np.linspace(0, 1, 302), {"neuron": list(ORDER)}, "neuron")
    picture = neuron_map(values, "width (mV)", (0, 1), marked=["AVAL", "DB1"])
    lines, dots, rings = picture
    held = dict(zip(dots.dimension_values("neuron"), dots.dimension_values("value"), strict=True))
    assert held == dict(zip(ORDER, values.values, strict=True))
    place = dict(zip(dots.dimension_values("neuron"), dots.array(["across", "row"]).tolist(), strict=True))
    np.testing.assert_array_equal(rings.array(), [place["AVAL"], place["DB1"]])
    across = [place[name][0] for name in sorted(NEURONS, key=lambda name: NEURONS[name].position)]
    assert across == sorted(across)
    assert len(lines) == np.count_nonzero(np.maximum(vpc.Connectome.load().chemical, np.triu(vpc.Connectome.load().gap)) >= 10)
    figure = hv.render(picture)
    assert figure.right[0].title == "width (mV)" and list(figure.yaxis[0].major_label_overrides.values()) == list(LANES)


def test_no_neuron_of_a_map_hides_another():
    picture = neuron_map({}, "nothing", wiring=None)
    hv.render(picture)
    dots = picture.get(0).array(["across", "row"]) * [600, 11]  # pixels
    apart = np.abs(dots[:, None] - dots).max(axis=2) + 100 * np.eye(302)
    assert apart.min() >= 10
    with pytest.raises(vpc.UnknownNeuron, match="did you mean 'AVAL'"):
        neuron_map({"AVALL": 1.0}, "nothing")
    with pytest.raises(vpc.UnknownNeuron, match="did you mean 'AVAL'"):
        neuron_map({"AVAL": 1.0}, "nothing", marked=["AVALL"])

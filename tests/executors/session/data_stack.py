"""What analysts use in sessions, as blocks of code, to see what is kept after a crash or a fork.

Each use is a block that leaves variables, and a block that fails unless these are there and the
library still works, in parallel where it does so.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

# What a virtual environment needs for all uses.
PACKAGES: Final = (
    "duckdb joblib lightgbm matplotlib numba numexpr numpy pandas pillow plotly polars pyarrow "
    "scikit-learn scipy seaborn statsmodels"
).split()


class Use(NamedTuple):
    """One use. `kept`: in what way a session has it after a crash and in a branch.

    "values" are pickled, "crash" has something that `checkpoint` and `fork` name and refuse, "lost"
    is what cannot be saved, which is named.
    """

    name: str
    setup: str
    check: str
    kept: Literal["copy", "values", "crash", "lost"] = "copy"


_FRAME = """
import numpy as np, pandas as pd
frame = pd.DataFrame({"key": [i % 7 for i in range(300_000)], "value": np.arange(300_000.0),
                      "text": ["abc", "déf", "ghi"] * 100_000})
"""
_FEATURES = """
import numpy as np
rng = np.random.RandomState(0)
X = rng.rand(600, 4)
y = (X[:, 0] + X[:, 1] > 1).astype(int)
"""
USES_OF_PACKAGES: Final = [
    Use(
        "numpy, scipy: linear algebra",
        "import numpy as np, scipy.linalg, scipy.optimize\n"
        "a = np.random.RandomState(0).rand(700, 700)\nb = a @ a\ne = np.eye(300) * 3\n"
        "w = scipy.linalg.eigh(e)[0]",
        "assert np.allclose(a @ a, b)\nassert np.linalg.svd(a[:200, :200])[1][0] > 90\n"
        "assert np.allclose(scipy.linalg.eigh(e)[0], w)\n"
        "assert abs(scipy.optimize.minimize(lambda x: (x[0] - 2) ** 2, [0]).x[0] - 2) < 1e-3",
    ),
    Use(
        "scipy: sparse matrices, fft",
        "import scipy.sparse as sp, scipy.fft, numpy as np\nm = sp.random(500, 500, 0.01, 'csr')\n"
        "f = scipy.fft.fft(np.ones((64, 1024)), workers=2)",
        "assert (m @ m).shape == (500, 500)\n"
        "assert np.allclose(scipy.fft.fft(np.ones((64, 1024)), workers=2), f)",
        kept="values",
    ),
    Use(
        "numexpr, also by pandas",
        _FRAME + "import numexpr as ne\na = np.arange(1e6)\nr = ne.evaluate('a * 2 + 1')\n"
        "double = frame.eval('value * 2')",
        "assert (ne.evaluate('a * 2 + 1') == r).all()\n"
        "assert (frame.eval('value * 2') == double).all()\n"
        "assert len(frame.query('key == 3')) > 42_000\n"
        "assert ((frame['value'] + frame['value']) == double).all()",
    ),
    Use(
        "numba: njit, a parallel loop",
        "import numba, numpy as np\n@numba.njit\ndef add(n):\n    s = 0\n"
        "    for i in range(n): s += i\n    return s\n"
        "@numba.njit(parallel=True)\ndef total(a):\n    s = 0.0\n"
        "    for i in numba.prange(len(a)): s += a[i]\n    return s\n"
        "ones = np.ones(100_000)\nassert total(ones) == 100_000\nassert add(10) == 45",
        "assert total(ones) == 100_000\nassert add(100) == 4950",
    ),
    Use(
        "pandas: group, sort, count, csv, dates",
        _FRAME + "sums = frame.groupby('key')['value'].sum()\n"
        "frame.head(20_000).to_csv('a.csv', index=False)\nread = pd.read_csv('a.csv')\n"
        "s = pd.Series(np.arange(1000.0), pd.date_range('2020', periods=1000))\n"
        "monthly = s.resample('MS').mean()",
        "assert (frame.groupby('key')['value'].sum() == sums).all()\n"
        "assert frame.sort_values('value', ascending=False)['value'].iloc[0] == 299_999\n"
        "assert frame['text'].value_counts()['abc'] == 100_000\n"
        "assert len(pd.read_csv('a.csv')) == len(read) == 20_000\n"
        "assert (s.resample('MS').mean() == monthly).all()\n"
        "assert s.rolling(3).mean().iloc[-1] == 998",
    ),
    Use(
        "pyarrow: tables, csv, datasets, parquet by pandas",
        _FRAME + "import pyarrow as pa, pyarrow.compute as pc, pyarrow.csv, pyarrow.dataset as ds\n"
        "frame.to_parquet('a.parquet')\nread = pd.read_parquet('a.parquet')\n"
        "t = pa.table({'k': [i % 5 for i in range(100_000)], 'v': list(range(100_000))})\n"
        "g = t.group_by('k').aggregate([('v', 'sum')])\n"
        "_ = open('a.csv', 'w').write('a,b\\n' + '1,2\\n' * 200_000)\n"
        "csv = pyarrow.csv.read_csv('a.csv')\n"
        "ds.write_dataset(t, 'd', format='parquet', max_rows_per_file=9_000,\n"
        "                 max_rows_per_group=9_000)\nd = ds.dataset('d')",
        "frame.to_parquet('b.parquet')\n"
        "assert pd.read_parquet('b.parquet')['value'].sum() == read['value'].sum()\n"
        "assert t.group_by('k').aggregate([('v', 'sum')]).sort_by('k') == g.sort_by('k')\n"
        "assert pc.sum(t['v']).as_py() == 4_999_950_000\n"
        "assert pyarrow.csv.read_csv('a.csv') == csv\n"
        "assert d.to_table(filter=ds.field('v') < 7).num_rows == 7\n"
        "assert ds.dataset('d').to_table().num_rows == 100_000",
    ),
    Use(
        "pyarrow: half-read batches of a dataset",
        "import pyarrow as pa, pyarrow.dataset as ds\n"
        "ds.write_dataset(pa.table({'a': range(100_000)}), 'd', format='parquet',\n"
        "                 max_rows_per_file=5_000, max_rows_per_group=1_000)\n"
        "rows = iter(ds.dataset('d').to_batches(batch_size=500))\nfirst = next(rows).num_rows",
        "assert first + sum(batch.num_rows for batch in rows) == 100_000\n"
        "assert ds.dataset('d').count_rows() == 100_000",
    ),
    Use(
        "polars: import",
        "import polars as pl\nx = 1",
        "assert x == 1\ndf = pl.DataFrame({'a': range(1000), 'g': [1, 2] * 500})\n"
        "assert df.group_by('g').agg(pl.col('a').sum())['a'].sum() == 499_500",
    ),
    Use(
        "polars: frames, streaming, parquet",
        "import polars as pl\n"
        "df = pl.DataFrame({'a': range(100_000), 'g': [i % 7 for i in range(100_000)]})\n"
        "sums = df.group_by('g').agg(pl.col('a').sum()).sort('g')\n"
        "lazy = pl.LazyFrame({'a': range(100_000)}).filter(pl.col('a') > 5)\n"
        "n = lazy.collect(engine='streaming').height\ndf.write_parquet('a.parquet')",
        "assert df.group_by('g').agg(pl.col('a').sum()).sort('g').equals(sums)\n"
        "assert lazy.collect(engine='streaming').height == n == 99_994\n"
        "assert pl.scan_parquet('a.parquet').collect().equals(df)",
        kept="values",
    ),
    Use(
        "duckdb: databases in memory, frames, parquet",
        _FRAME + "import duckdb\nclass Store: pass\nstore = Store()\nstore.one = duckdb.connect()\n"
        "two = duckdb.connect()\nfor c in (duckdb, store.one, two):\n"
        "    c.sql('create table t as select i, i % 7 g from range(1000000) r(i)')\ndel c\n"
        "q = 'select key, sum(value) s from frame group by key order by key'\n"
        "sums = duckdb.sql(q).df()\n"
        "duckdb.sql(\"copy (select i from range(1000000) r(i)) to 'a.parquet'\")",
        "for c in (duckdb, store.one, two):\n"
        "    assert c.sql('select sum(i) from t').fetchall() == [(499_999_500_000,)]\n"
        "    assert int(c.sql(\"select current_setting('threads')\").fetchall()[0][0]) > 1\n"
        "assert duckdb.sql(q).df().equals(sums)\nduckdb.sql('insert into t values (-1, 100)')\n"
        "assert duckdb.sql('select max(g) from t').fetchall() == [(100,)]\n"
        "assert duckdb.sql(\"select sum(i) from 'a.parquet'\").fetchall() == [(499_999_500_000,)]",
    ),
    Use(
        "duckdb: a half-read result",
        "import duckdb\nc = duckdb.connect()\nr = c.execute('select i from range(100000) r(i)')\n"
        "first = r.fetchmany(10)",
        "assert first[-1] == (9,)\nassert len(c.fetchall()) == 99_990\n"
        "assert c.execute('select sum(i) from range(1000000) r(i)').fetchall() == "
        "[(499999500000,)]",
    ),
    Use(
        "duckdb: a database in a file",
        "import duckdb\nc = duckdb.connect('a.duckdb')\nc.execute('create table t as select 1 i')",
        "assert c.execute('select * from t').fetchall() == [(1,)]",
        kept="lost",
    ),
    Use(
        "scikit-learn: linear models, forests, boosting, also in threads",
        _FEATURES + "from sklearn.decomposition import PCA\n"
        "from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "models = [make_pipeline(StandardScaler(), PCA(3), LogisticRegression()),\n"
        "          RandomForestClassifier(10), RandomForestClassifier(10, n_jobs=2),\n"
        "          HistGradientBoostingClassifier(max_iter=5)]\n"
        "scores = [model.fit(X, y).score(X, y) for model in models]",
        "assert [model.score(X, y) for model in models] == scores\n"
        "assert min(model.fit(X, y).score(X, y) for model in models) > 0.8",
    ),
    Use(
        "scikit-learn: clusters, neighbours, TSNE",
        _FEATURES + "from sklearn.cluster import KMeans\nfrom sklearn.manifold import TSNE\n"
        "from sklearn.neighbors import KNeighborsClassifier\n"
        "model = KMeans(5, n_init=2, random_state=0).fit(X)\nlabels = model.labels_\n"
        "flat = TSNE(max_iter=250, random_state=0).fit_transform(X[:100])\n"
        "near = KNeighborsClassifier().fit(X, y)",
        "assert (KMeans(5, n_init=2, random_state=0).fit(X).labels_ == labels).all()\n"
        "assert (model.predict(X) == labels).all()\nassert near.score(X, y) > 0.9\n"
        "assert TSNE(max_iter=250).fit_transform(X[:100]).shape == flat.shape",
    ),
    Use(
        "scikit-learn: GridSearchCV, n_jobs=-1",
        _FEATURES
        + "from sklearn.model_selection import GridSearchCV\nfrom sklearn.svm import SVC\n"
        "model = GridSearchCV(SVC(), {'C': [1, 10]}, n_jobs=-1, cv=2).fit(X, y)",
        "assert model.score(X, y) > 0.9\nassert model.fit(X, y).score(X, y) > 0.9",
        kept="crash",
    ),
    Use(
        "statsmodels: OLS, formulas, ARIMA",
        "import numpy as np, pandas as pd, statsmodels.api as sm, statsmodels.formula.api as smf\n"
        "from statsmodels.tsa.arima.model import ARIMA\nx = np.arange(50.0)\n"
        "ols = sm.OLS(3 * x, sm.add_constant(x)).fit()\n"
        "fit = smf.ols('y ~ x', pd.DataFrame({'x': x, 'y': x * 2})).fit()\n"
        "arima = ARIMA(np.random.RandomState(0).rand(60), order=(1, 0, 0)).fit()",
        "assert abs(ols.params[1] - 3) < 1e-6\nassert abs(fit.params['x'] - 2) < 1e-6\n"
        "assert abs(sm.OLS(3 * x, sm.add_constant(x)).fit().params[1] - 3) < 1e-6\n"
        "assert len(arima.forecast(3)) == 3",
    ),
    Use(
        "lightgbm: train",
        _FEATURES + "import lightgbm as lgb\n"
        "model = lgb.LGBMClassifier(n_estimators=5, verbose=-1).fit(X, y)",
        "assert model.score(X, y) > 0.8\nassert model.fit(X, y).score(X, y) > 0.8",
    ),
    Use(
        "joblib: processes",
        "import joblib, math\n"
        "def roots(): return joblib.Parallel(2)(joblib.delayed(math.sqrt)(i * i) for i in "
        "range(9))\n"
        "r = roots()",
        "assert roots() == r == [*range(9)]",
        kept="crash",
    ),
    Use(
        "joblib: threads",
        "import joblib, math\ndef roots():\n"
        "    jobs = (joblib.delayed(math.sqrt)(i * i) for i in range(9))\n"
        "    return joblib.Parallel(2, backend='threading')(jobs)\nr = roots()",
        "assert roots() == r == [*range(9)]",
    ),
    Use(
        "figures and pictures",
        "import matplotlib.pyplot as plt, pandas as pd, plotly.express as px, seaborn as sns\n"
        "from PIL import Image\nfigure, lines = plt.subplots()\n_ = lines.plot([1, 3, 2])\n"
        "d = pd.DataFrame({'x': [1, 2, 3], 'y': [3, 1, 2]})\n"
        "axes = sns.scatterplot(d, x='x', y='y')\nchart = px.line(x=[1, 2, 3], y=[3, 1, 2])\n"
        "picture = Image.new('RGB', (300, 200), 'red')",
        "_ = lines.set_title('x'); figure.savefig('a.png')\nassert len(lines.lines) == 1\n"
        "axes.figure.savefig('b.png')\n_ = sns.histplot(d, x='x')\n"
        "assert 'Plotly' in chart.to_html()\npicture.resize((30, 20)).save('c.png')\n"
        "assert Image.open('c.png').size == (30, 20)",
    ),
]
# What needs no package but `requests`.
USES_OF_PYTHON: Final = [
    Use(
        "databases, log files and half-read files",
        "import logging, requests, sqlite3\nm = sqlite3.connect(':memory:')\n"
        "f = sqlite3.connect('a.db')\nfor c in (m, f):\n    _ = c.execute('create table t (i)')\n"
        "    _ = c.execute('insert into t values (7)'); c.commit()\n"
        "s = requests.Session()\ns.headers['x'] = '1'\nlog = logging.getLogger('a')\n"
        "log.addHandler(logging.FileHandler('a.log')); log.warning('one')\n"
        "_ = open('in.txt', 'w').write('1\\n2\\n3\\n')\nr = open('in.txt'); first = next(r)\n"
        "w = open('out.txt', 'w'); _ = w.write('a')",
        "for c in (m, f):\n    assert c.execute('select i from t').fetchall() == [(7,)]\n"
        "assert s.headers['x'] == '1'\n"
        "prepared = requests.Request('GET', 'http://a.example', params={'b': 1}).prepare()\n"
        "assert prepared.url[-4:] == '?b=1'\nlog.warning('two')\n"
        "assert open('a.log').read() == 'one\\ntwo\\n'\n"
        "assert (first, [*r]) == ('1\\n', ['2\\n', '3\\n'])\n_ = w.write('b'); w.close()\n"
        "assert open('out.txt').read() == 'ab'",
    ),
    Use(
        "closures, generators, locks, queues",
        "import queue, threading\nclass A:\n    def __init__(self): self.x = lambda: 1\na = A()\n"
        "g = (i * i for i in range(9)); seen = [next(g), next(g)]\n"
        "lock = threading.Lock(); _ = lock.acquire()\nq = queue.Queue(); q.put(1)",
        "assert a.x() == 1\nassert (seen, next(g)) == ([0, 1], 4)\n"
        "assert lock.locked()\nlock.release()\nassert q.get(timeout=5) == 1",
    ),
    Use(
        "pools of threads and processes in with, programs",
        "import multiprocessing, subprocess\n"
        "from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor\n"
        "fork = multiprocessing.get_context('fork')\ndef sums():\n"
        "    with ThreadPoolExecutor(4) as t, ProcessPoolExecutor(2, fork) as e, fork.Pool(2) as p:"
        "\n        return [sum(each.map(abs, range(-9, 0))) for each in (t, e, p)]\n"
        "r = sums()\ndone = subprocess.run(['echo', 'x'], capture_output=True)",
        "assert sums() == r == [45] * 3\nassert done.stdout == b'x\\n'\n"
        "assert subprocess.run(['true']).returncode == 0",
    ),
    Use(
        "multiprocessing.pool.ThreadPool left open",
        "from multiprocessing.pool import ThreadPool\np = ThreadPool(2)\nr = p.map(abs, [-1, -2])",
        "assert r == [1, 2]\nassert p.map_async(abs, [-1, -2]).get(timeout=5) == r",
        kept="lost",
    ),
    Use(
        "logging: a QueueListener",
        "import logging.handlers, queue\nq = queue.Queue()\n"
        "listener = logging.handlers.QueueListener(q, logging.FileHandler('a.log'))\n"
        "listener.start()\nx = 1",
        "assert x == 1\nq.put(logging.makeLogRecord({'msg': 'm'}))\nq.join()\n"
        "assert open('a.log').read().endswith('m\\n')",
    ),
]

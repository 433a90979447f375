"""What analysts use in sessions, as blocks of code, to see what is kept after a crash or a fork.

Each use is a block that leaves variables, and a block that fails unless these are there and the
library still works, in parallel where it does so.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

# What a virtual environment needs for all uses.
PACKAGES: Final = [
    "duckdb",
    "joblib",
    "lightgbm",
    "matplotlib",
    "numba",
    "numexpr",
    "numpy",
    "pandas",
    "pillow",
    "plotly",
    "polars",
    "pyarrow",
    "requests",
    "scikit-learn",
    "scipy",
    "seaborn",
    "statsmodels",
    "tqdm",
]


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
USES: Final = [
    # arrays
    Use(
        "numpy: matrix product",
        "import numpy as np\na = np.random.RandomState(0).rand(700, 700)\nb = a @ a",
        "assert np.allclose(a @ a, b)\nassert np.linalg.svd(a[:200, :200])[1][0] > 90",
    ),
    Use(
        "scipy: eigh, minimize",
        "import numpy as np, scipy.linalg, scipy.optimize\na = np.eye(300) * 3\n"
        "w = scipy.linalg.eigh(a)[0]",
        "assert np.allclose(scipy.linalg.eigh(a)[0], w)\n"
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
        "numexpr: evaluate",
        "import numexpr as ne, numpy as np\na = np.arange(1e6)\nr = ne.evaluate('a * 2 + 1')",
        "assert (ne.evaluate('a * 2 + 1') == r).all()",
    ),
    Use(
        "numba: njit",
        "import numba\n@numba.njit\ndef add(n):\n    s = 0\n    for i in range(n):\n"
        "        s += i\n"
        "    return s\nassert add(10) == 45",
        "assert add(100) == 4950",
    ),
    Use(
        "numba: parallel loop",
        "import numba, numpy as np\n@numba.njit(parallel=True)\ndef total(a):\n    s = 0.0\n"
        "    for i in numba.prange(len(a)):\n        s += a[i]\n    return s\n"
        "ones = np.ones(100_000)\nassert total(ones) == 100_000",
        "assert total(ones) == 100_000",
    ),
    # frames
    Use(
        "pandas: group, sort, count (with numexpr)",
        _FRAME + "sums = frame.groupby('key')['value'].sum()",
        "assert (frame.groupby('key')['value'].sum() == sums).all()\n"
        "assert frame.sort_values('value', ascending=False)['value'].iloc[0] == 299_999\n"
        "assert frame['text'].value_counts()['abc'] == 100_000",
    ),
    Use(
        "pandas: eval, query, arithmetic (numexpr)",
        _FRAME + "double = frame.eval('value * 2')",
        "assert (frame.eval('value * 2') == double).all()\n"
        "assert len(frame.query('key == 3')) > 42_000\n"
        "assert ((frame['value'] + frame['value']) == double).all()",
    ),
    Use(
        "pandas: read_csv, to_csv",
        _FRAME + "frame.head(20_000).to_csv('a.csv', index=False)\nread = pd.read_csv('a.csv')",
        "assert len(pd.read_csv('a.csv')) == len(read) == 20_000",
    ),
    Use(
        "pandas: to_parquet, read_parquet",
        _FRAME + "frame.to_parquet('a.parquet')\nread = pd.read_parquet('a.parquet')",
        "assert len(read) == 300_000\nframe.to_parquet('b.parquet')\n"
        "assert pd.read_parquet('b.parquet')['value'].sum() == read['value'].sum()",
    ),
    Use(
        "pandas: dates, resample, rolling",
        "import pandas as pd, numpy as np\n"
        "s = pd.Series(np.arange(1000.0), pd.date_range('2020', periods=1000))\n"
        "monthly = s.resample('MS').mean()",
        "assert (s.resample('MS').mean() == monthly).all()\n"
        "assert s.rolling(3).mean().iloc[-1] == 998",
    ),
    Use(
        "pyarrow: table, compute",
        "import pyarrow as pa, pyarrow.compute as pc\n"
        "t = pa.table({'k': [i % 5 for i in range(100_000)], 'v': list(range(100_000))})\n"
        "g = t.group_by('k').aggregate([('v', 'sum')])",
        "assert t.group_by('k').aggregate([('v', 'sum')]).sort_by('k') == g.sort_by('k')\n"
        "assert pc.sum(t['v']).as_py() == 4_999_950_000",
    ),
    Use(
        "pyarrow: csv",
        "import pyarrow.csv as pc\nopen('a.csv', 'w').write('a,b\\n' + '1,2\\n' * 200_000)\n"
        "t = pc.read_csv('a.csv')",
        "assert pc.read_csv('a.csv') == t",
    ),
    Use(
        "pyarrow: dataset",
        "import pyarrow as pa, pyarrow.dataset as ds\n"
        "ds.write_dataset(pa.table({'a': range(50_000)}), 'd', format='parquet',\n"
        "                 max_rows_per_file=5_000, max_rows_per_group=5_000)\n"
        "d = ds.dataset('d')\nt = d.to_table()",
        "assert d.to_table(filter=ds.field('a') < 7).num_rows == 7\n"
        "assert ds.dataset('d').to_table().num_rows == t.num_rows == 50_000",
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
    # polars, duckdb
    Use(
        "polars: import",
        "import polars as pl\nx = 1",
        "assert x == 1\ndf = pl.DataFrame({'a': range(1000), 'g': [1, 2] * 500})\n"
        "assert df.group_by('g').agg(pl.col('a').sum())['a'].sum() == 499_500",
    ),
    Use(
        "polars: frames",
        "import polars as pl\n"
        "df = pl.DataFrame({'a': range(100_000), 'g': [i % 7 for i in range(100_000)]})\n"
        "sums = df.group_by('g').agg(pl.col('a').sum()).sort('g')",
        "assert df.group_by('g').agg(pl.col('a').sum()).sort('g').equals(sums)",
        kept="values",
    ),
    Use(
        "polars: lazy, streaming",
        "import polars as pl\nlazy = pl.LazyFrame({'a': range(100_000)}).filter(pl.col('a') > 5)\n"
        "n = lazy.collect(engine='streaming').height",
        "assert lazy.collect(engine='streaming').height == n == 99_994",
        kept="values",
    ),
    Use(
        "polars: parquet",
        "import polars as pl\ndf = pl.DataFrame({'a': range(100_000)})\n"
        "df.write_parquet('a.parquet')",
        "assert pl.scan_parquet('a.parquet').collect().equals(df)",
        kept="values",
    ),
    Use(
        "duckdb: default connection",
        "import duckdb\n"
        "duckdb.sql('create table t as select i, i % 7 g from range(1000000) r(i)')\n"
        "q = 'select g, sum(i) from t group by g order by g'\nrows = duckdb.sql(q).fetchall()",
        "assert duckdb.sql(q).fetchall() == rows\nduckdb.sql('insert into t values (1, 100)')\n"
        "assert duckdb.sql(q).fetchall()[-1] == (100, 1)",
    ),
    Use(
        "duckdb: two databases in memory",
        "import duckdb\nclass Store: pass\nstore = Store()\nstore.one = duckdb.connect()\n"
        "two = duckdb.connect()\nfor c in (store.one, two):\n"
        "    c.execute('create table t as select i from range(1000000) r(i)')\ndel c",
        "for c in (store.one, two):\n"
        "    assert c.execute('select sum(i) from t').fetchall() == [(499_999_500_000,)]\n"
        "    assert int(c.execute(\"select current_setting('threads')\").fetchall()[0][0]) > 1",
    ),
    Use(
        "duckdb: over a pandas frame",
        _FRAME
        + "import duckdb\nq = 'select key, sum(value) s from frame group by key order by key'\n"
        "sums = duckdb.sql(q).df()",
        "assert duckdb.sql(q).df().equals(sums)",
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
        "duckdb: parquet",
        "import duckdb\n"
        "duckdb.sql(\"copy (select i from range(1000000) r(i)) to 'a.parquet'\")\nx = 1",
        "assert x == 1\n"
        "assert duckdb.sql(\"select sum(i) from 'a.parquet'\").fetchall() == [(499_999_500_000,)]",
    ),
    Use(
        "duckdb: a database in a file",
        "import duckdb\nc = duckdb.connect('a.duckdb')\nc.execute('create table t as select 1 i')",
        "assert c.execute('select * from t').fetchall() == [(1,)]",
        kept="lost",
    ),
    # models
    Use(
        "scikit-learn: linear regression, pipeline, PCA",
        _FEATURES + "from sklearn.decomposition import PCA\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "from sklearn.pipeline import make_pipeline\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "model = make_pipeline(StandardScaler(), PCA(3), LogisticRegression()).fit(X, y)",
        "p = model.predict(X)\nassert (model.fit(X, y).predict(X) == p).all()",
    ),
    Use(
        "scikit-learn: RandomForest",
        _FEATURES + "from sklearn.ensemble import RandomForestClassifier\n"
        "model = RandomForestClassifier(10).fit(X, y)",
        "assert model.score(X, y) > 0.9\nassert model.fit(X, y).score(X, y) > 0.9",
    ),
    Use(
        "scikit-learn: RandomForest, n_jobs=2",
        _FEATURES + "from sklearn.ensemble import RandomForestClassifier\n"
        "model = RandomForestClassifier(10, n_jobs=2).fit(X, y)",
        "assert model.score(X, y) > 0.9\nassert model.fit(X, y).score(X, y) > 0.9",
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
        "scikit-learn: KMeans",
        _FEATURES + "from sklearn.cluster import KMeans\n"
        "model = KMeans(5, n_init=2, random_state=0).fit(X)\nlabels = model.labels_",
        "assert (KMeans(5, n_init=2, random_state=0).fit(X).labels_ == labels).all()\n"
        "assert (model.predict(X) == labels).all()",
    ),
    Use(
        "scikit-learn: TSNE, nearest neighbours",
        _FEATURES + "from sklearn.manifold import TSNE\n"
        "from sklearn.neighbors import KNeighborsClassifier\n"
        "flat = TSNE(max_iter=250, random_state=0).fit_transform(X[:100])\n"
        "model = KNeighborsClassifier().fit(X, y)",
        "assert TSNE(max_iter=250).fit_transform(X[:100]).shape == flat.shape\n"
        "assert model.score(X, y) > 0.9",
    ),
    Use(
        "scikit-learn: HistGradientBoosting",
        _FEATURES + "from sklearn.ensemble import HistGradientBoostingClassifier\n"
        "model = HistGradientBoostingClassifier(max_iter=5).fit(X, y)",
        "assert model.score(X, y) > 0.8\nassert model.fit(X, y).score(X, y) > 0.8",
    ),
    Use(
        "statsmodels: OLS",
        "import numpy as np, statsmodels.api as sm\nx = np.arange(50.0)\n"
        "fit = sm.OLS(3 * x, sm.add_constant(x)).fit()",
        "assert abs(fit.params[1] - 3) < 1e-6\n"
        "assert abs(sm.OLS(3 * x, sm.add_constant(x)).fit().params[1] - 3) < 1e-6",
    ),
    Use(
        "statsmodels: formulas, ARIMA",
        "import numpy as np, pandas as pd, statsmodels.formula.api as smf\n"
        "from statsmodels.tsa.arima.model import ARIMA\n"
        "d = pd.DataFrame({'x': np.arange(50.0), 'y': np.arange(50.0) * 2})\n"
        "fit = smf.ols('y ~ x', d).fit()\n"
        "arima = ARIMA(np.random.RandomState(0).rand(60), order=(1, 0, 0)).fit()",
        "assert abs(fit.params['x'] - 2) < 1e-6\nassert len(arima.forecast(3)) == 3",
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
    # pictures, files, connections
    Use(
        "matplotlib: an open figure",
        "import matplotlib.pyplot as plt\nfigure, axes = plt.subplots()\n_ = axes.plot([1, 3, 2])",
        "_ = axes.set_title('x')\nfigure.savefig('a.png')\nassert len(axes.lines) == 1",
    ),
    Use(
        "seaborn: a plot",
        "import pandas as pd, seaborn as sns\nd = pd.DataFrame({'x': [1, 2, 3], 'y': [3, 1, 2]})\n"
        "axes = sns.scatterplot(d, x='x', y='y')",
        "axes.figure.savefig('a.png')\n_ = sns.histplot(d, x='x')",
    ),
    Use(
        "plotly: a figure",
        "import plotly.express as px\nfigure = px.line(x=[1, 2, 3], y=[3, 1, 2])",
        "assert 'Plotly' in figure.to_html()",
    ),
    Use(
        "pillow: a picture",
        "from PIL import Image\npicture = Image.new('RGB', (300, 200), 'red')",
        "picture.resize((30, 20)).save('a.png')\nassert Image.open('a.png').size == (30, 20)",
    ),
    Use(
        "tqdm: progress bars",
        "from tqdm import tqdm\nx = [i for i in tqdm(range(3))]\nbar = tqdm(total=5)",
        "assert x == [i for i in tqdm(range(3))]\n_ = bar.update(2)\nassert bar.n == 2",
    ),
    Use(
        "sqlite3: a connection in memory, one to a file",
        "import sqlite3\nm = sqlite3.connect(':memory:')\nf = sqlite3.connect('a.db')\n"
        "for c in (m, f):\n    _ = c.execute('create table t (i)')\n"
        "    _ = c.execute('insert into t values (7)'); c.commit()",
        "for c in (m, f):\n    assert c.execute('select i from t').fetchall() == [(7,)]",
    ),
    Use(
        "requests: a session",
        "import requests\ns = requests.Session()\ns.headers['x'] = '1'",
        "assert s.headers['x'] == '1'\n"
        "assert requests.Request('GET', 'http://a.example', params={'b': 1}).prepare().url[-4:] "
        "== '?b=1'",
    ),
    Use(
        "logging: handlers, one to a file",
        "import logging\nlog = logging.getLogger('a')\n"
        "log.addHandler(logging.FileHandler('a.log'))\n"
        "log.warning('one')",
        "log.warning('two')\nassert open('a.log').read() == 'one\\ntwo\\n'",
    ),
    Use(
        "files: one half-read, one half-written",
        "_ = open('in.txt', 'w').write('1\\n2\\n3\\n')\nr = open('in.txt'); first = next(r)\n"
        "w = open('out.txt', 'w'); _ = w.write('a')",
        "assert (first, [*r]) == ('1\\n', ['2\\n', '3\\n'])\n_ = w.write('b'); w.close()\n"
        "assert open('out.txt').read() == 'ab'",
    ),
    # Python
    Use(
        "Python: classes, closures, generators",
        "class A:\n    def __init__(self): self.x = lambda: 1\na = A()\n"
        "g = (i * i for i in range(9)); first = [next(g), next(g)]",
        "assert a.x() == 1\nassert (first, next(g)) == ([0, 1], 4)",
    ),
    Use(
        "Python: locks, queues, events",
        "import queue, threading\nlock = threading.Lock(); _ = lock.acquire()\n"
        "q = queue.Queue(); q.put(1)",
        "assert lock.locked()\nlock.release()\nassert q.get(timeout=5) == 1",
    ),
    Use(
        "ThreadPoolExecutor in with",
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor(4) as e: r = [*e.map(abs, range(-9, 0))]",
        "with ThreadPoolExecutor(4) as e: assert r == [*e.map(abs, range(-9, 0))]",
    ),
    Use(
        "ThreadPoolExecutor left open",
        "from concurrent.futures import ThreadPoolExecutor\ne = ThreadPoolExecutor(4)\n"
        "r = [*e.map(abs, range(-9, 0))]\nf = e.submit(abs, -3)\nassert f.result() == 3",
        "assert r == [*e.map(abs, range(-9, 0))]\nassert f.result() == 3",
    ),
    Use(
        "asyncio.to_thread, run_in_executor",
        "import asyncio\nx = await asyncio.to_thread(abs, -3)",
        "threads = (asyncio.to_thread(abs, -n) for n in range(9))\n"
        "assert x == 3\nassert await asyncio.gather(*threads) == [*range(9)]\n"
        "assert await asyncio.get_running_loop().run_in_executor(None, abs, -4) == 4",
    ),
    Use(
        "multiprocessing.Pool in with",
        "import multiprocessing\nfork = multiprocessing.get_context('fork')\n"
        "with fork.Pool(2) as p: r = p.map(abs, [-1, -2])",
        "with fork.Pool(2) as p: assert r == p.map(abs, [-1, -2])",
    ),
    Use(
        "ProcessPoolExecutor in with",
        "import multiprocessing\nfrom concurrent.futures import ProcessPoolExecutor\n"
        "def squares():\n"
        "    with ProcessPoolExecutor(2, multiprocessing.get_context('fork')) as e:\n"
        "        return [*e.map(abs, [-1, -2])]\nr = squares()",
        "assert squares() == r == [1, 2]",
    ),
    Use(
        "subprocess.run",
        "import subprocess\nr = subprocess.run(['echo', 'x'], capture_output=True)",
        "assert r.stdout == b'x\\n'\nassert subprocess.run(['true']).returncode == 0",
    ),
    Use(
        "threading: a worker that waits for a queue",
        "import queue, threading\nq, out = queue.Queue(), queue.Queue()\ndef work():\n"
        "    while True: out.put(q.get() + 1)\nthreading.Thread(target=work, daemon=True).start()\n"
        "x = 1",
        "assert x == 1\nq.put(1)\nassert out.get(timeout=5) == 2",
        kept="lost",
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
        "listener.start()\n"
        "x = 1",
        "assert x == 1\nq.put(logging.makeLogRecord({'msg': 'm'}))\nlistener.stop()\n"
        "assert open('a.log').read() == 'm\\n'",
        kept="lost",
    ),
]

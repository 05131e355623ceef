"""Source code of networks, valid and with the line of its error. The form shows some errors only when the code runs."""

from __future__ import annotations

_PROPERTIES = """
    @model_property
    def inference(self):
        return slim.fully_connected(slim.flatten(self.x), self.nclasses, activation_fn=None)

    @model_property
    def loss(self):
        return digits.classification_loss(self.inference, self.y)
"""

_TOWER = f"class UserModel(Tower):\n{_PROPERTIES}"

_BUILD_MODEL = """
def build_model(params):
    x = tf.reshape(params['x'], [-1] + list(params['input_shape']))
    keep = tf.placeholder(tf.float32)
    model = slim.fully_connected(slim.flatten(tf.nn.dropout(x, keep)), params['nclasses'], activation_fn=None)

    def loss(y):
        return digits.classification_loss(model, y)

    return {'model': model, 'loss': loss, 'feed_dict_train': {keep: 0.5}, 'feed_dict_val': {keep: 1.0}}
"""

_PYTHON_2 = f"""# -*- coding: latin-1 -*-
settings = {{'layers': 010, 'rate': 10L}}
for name, value in settings.items():
    print name, value,
print
print >>sys.stderr, 'layers: %d' % settings['layers']
for number in xrange(3):
    if number <> 1 and 'rate' in settings:
\tprint `number`
try:
    raise ValueError, 'three'
except (ValueError, TypeError), error:
    print error
exec 'limit = 5'

{_TOWER}"""

_KERAS = """
import keras
from keras import layers

@keras.saving.register_keras_serializable()
class Block(layers.Layer):
    def __init__(self, filters, **settings):
        super().__init__(**settings)
        self.convolution = layers.Conv2D(filters, 3, padding="same")

    def call(self, x):
        return keras.ops.relu(self.convolution(x))

class UserModel(Tower):
    @model_property
    def inference(self):
        model = keras.Sequential([Block(8), layers.GlobalAveragePooling2D(), layers.Dense(self.nclasses)])
        return model(self.x)

    @model_property
    def loss(self):
        return keras.losses.SparseCategoricalCrossentropy(from_logits=True)(self.y, self.inference)
"""

VALID = {
    "a class": _TOWER,
    "a byte order mark and the line ends of Windows": "\ufeff" + _TOWER.replace("\n", "\r\n"),
    "the line ends of old Macs": _TOWER.replace("\n", "\r"),
    "long": "x = 1\n" * 3000 + _TOWER,
    "build_model": _BUILD_MODEL,
    "long build_model": "x = 1\n" * 3000 + _BUILD_MODEL,
    "build_model is imported": "from operator import neg as build_model",
    "build_model instead of None": "UserModel = None\n" + _BUILD_MODEL,
    "Python 2": f"import sys\n{_PYTHON_2}",
    "long Python 2": "import sys\n" + "print 'x', \n" * 3000 + _PYTHON_2,
    "Keras 3": _KERAS,
    "imports of DIGITS 6": "from model import Tower\nfrom utils import model_property\nimport utils as digits\n"
    + _TOWER,
    "Model instead of Tower": _TOWER.replace("Tower", "Model"),
    "Tower under another name": "from model import Tower as Base\n" + _TOWER.replace("Tower", "Base"),
    "Tower in its module": "import model as m\n" + _TOWER.replace("Tower", "m.Tower"),
    "Tower from a call": "def base():\n    return Tower\n" + _TOWER.replace("Tower", "base()"),
    "an alias": _TOWER.replace("UserModel", "Net") + "\nUserModel = Net\n",
    "an alias of an alias": _TOWER.replace("UserModel", "Net")
    + "\nFirst = Net\nUserModel = Second = First\n",
    "an annotated alias": _TOWER.replace("UserModel", "Net") + "\nUserModel: type = Net\n",
    "an import under this name": "from model import Tower as Net\n"
    + _TOWER.replace("UserModel", "Net2")
    + "\ndef choose():\n    return Net2\nUserModel = choose()\n",
    "a condition": "if tf.__version__ > '0':\n"
    + "".join(f"    {line}\n" for line in _TOWER.splitlines())
    + "else:\n    UserModel = None\n",
    "a try": "try:\n    import nothing_like_it\n    Base = object\nexcept ImportError:\n    Base = Tower\n"
    + _TOWER.replace("(Tower)", "(Base)"),
    "a loop": _TOWER.replace("UserModel", "Net") + "\nfor UserModel in (object, Net):\n    pass\n",
    "a with": _TOWER.replace("UserModel", "Net")
    + "\nimport contextlib\nwith contextlib.nullcontext(Net) as UserModel:\n    pass\n",
    "a walrus": _TOWER.replace("UserModel", "Net") + "\nprint((UserModel := Net))\n",
    "a match": _TOWER.replace("UserModel", "Net") + "\nmatch Net:\n    case UserModel:\n        pass\n",
    "a global": f"def define():\n    global UserModel\n{''.join(f'    {line}{chr(10)}' for line in _TOWER.splitlines())}\ndefine()\n",
    "globals()": _TOWER.replace("UserModel", "Net") + "\nglobals()['UserModel'] = Net\n",
    "exec": f"exec({_TOWER!r})\n",
    "type()": _TOWER.replace("UserModel", "Net") + "\nUserModel = type('UserModel', (Net,), {})\n",
    "a subclass of a subclass": "class Base(Tower):\n    width = 3\n\nclass Middle(Base): pass\n"
    + _TOWER.replace("(Tower)", "(Middle)"),
    "properties of a base": _TOWER.replace("UserModel", "Base") + "\nclass UserModel(Base): pass\n",
    "properties of a mixin": f"class Mixin:\n{_PROPERTIES}\nclass UserModel(Mixin, Tower): pass\n",
    "properties of two mixins": _TOWER.replace("UserModel(Tower)", "A(object)").replace("loss", "lost")
    + "\nclass B:\n    loss = property(len)\nclass UserModel(A, B, Tower): pass\n",
    "a second definition": "class UserModel: pass\n" + _TOWER,
    "a definition before its name is used": _TOWER + "\nTower = None\n",
    "decorated class": "def same(found): return found\n@same\n" + _TOWER,
    "decorator that adds": "def add(found):\n    found.inference = found.loss = property(len)\n    return found\n"
    "@add\nclass UserModel(Tower): pass\n",
    "metaclass that adds": "class Adds(type):\n    inference = loss = None\n    def __init__(self, *args):\n"
    "        type.__setattr__(self, 'inference', property(len))\n        type.__setattr__(self, 'loss', property(len))\n"
    "class UserModel(Tower, metaclass=Adds): pass\n",
    "base that adds": "class Base(Tower):\n    def __init_subclass__(cls):\n"
    "        cls.inference = cls.loss = property(len)\nclass UserModel(Base): pass\n",
    "decorated properties": _TOWER.replace("@model_property", "@property"),
    "own decorators": "def cached(function):\n    return model_property(function)\n"
    + _TOWER.replace("@model_property", "@cached"),
    "properties by calls": "def compute(self): pass\nclass UserModel(Tower):\n"
    "    inference = property(compute)\n    def loss(self): pass\n    loss = model_property(loss)\n",
    "properties by assignment": "class UserModel(Tower):\n    pass\nUserModel.inference = UserModel.loss = property(len)\n",
    "properties by setattr": "class UserModel(Tower):\n    pass\nfor name in ('inference', 'loss'):\n"
    "    setattr(UserModel, name, property(len))\n",
    "conditional property": _TOWER.replace(
        "    @model_property\n    def loss", "    if True:\n     @model_property\n     def loss"
    ),
    "properties of a class in a variable": _TOWER.replace("UserModel", "A")
    + "\nBase = A if tf else object\nclass UserModel(Base): pass\n",
    "chain of a hundred bases": _TOWER.replace("UserModel", "N0")
    + "".join(f"class N{number + 1}(N{number}): pass\n" for number in range(100))
    + "UserModel = N100\n",
    "membership, dimensions and patterns": "import enum\nclass Mode(enum.Enum):\n    value = 1\n"
    "found = [1, 2]\nx = 3 not in found\nx = tf.zeros([2, 3]).get_shape()[1].value\nx = Mode['value'].value\n"
    "match x:\n    case Mode.value: pass\n    case [1, *_] | {'a': Mode.value}: pass\n" + _TOWER,
    "method called value": "class Box:\n    def value(self): return 3\nx = Box().value()\n" + _TOWER,
    "statement of Python 2 in a string": "'''\nprint 'x'\n'''\n" + _TOWER,
    "latest syntax": "from __future__ import annotations\nimport functools\n"
    "def area(width, /, height: tf.Nothing = 3, *, depth=1): return f'{width!r:>{height}}'\n" + _TOWER,
    "deep": "x = " + "(" * 90 + "1" + ")" * 90 + "\nx = " + " + ".join("1" * 300) + "\n" + _TOWER,
    "a chain of conditions": "x = 200\nif x < 0: pass\n"
    + "".join(f"elif x < {number}: pass\n" for number in range(200))
    + _TOWER,
    "finally": "try:\n    x = 1\nfinally:\n    x = 2\n" + _TOWER,
}

INVALID = {
    "syntax": (_TOWER + "class (\n", len(_TOWER.splitlines()) + 1),
    "syntax in a long text": ("x = 1\n" * 3000 + _TOWER + "x = = 3\n", 3001 + len(_TOWER.splitlines())),
    "syntax after Python 2": ("print 'x'\nx = = 3\n" + _TOWER, 2),
    "unfinished statement of Python 2": ("print 'x'\nprint 'x', (\n" + _TOWER, 1),
    "indentation": ("x = 1\n  y = 2\n" + _TOWER, 2),
    "unclosed string": ("x = 1\ny = '''\\\n" + _TOWER, 2),
    "return outside of a function": (_TOWER + "return 3\n", len(_TOWER.splitlines()) + 1),
    "break outside of a loop": ("if tf:\n    break\n" + _TOWER, 2),
    "parameter twice": ("x = 1\n\ndef f(a, a): pass\n" + _TOWER, 3),
    "nonlocal in a module": ("nonlocal x\n" + _TOWER, 1),
    "late import from the future": (_TOWER + "from __future__ import annotations\n", 10),
    "return in a long text": ("x = 1\n" * 3000 + "return 3\n" + _TOWER, 3001),
    "null": ("x = 1\n\0" + _TOWER, 2),
    "null in a long text": ("x = 1\n" * 3000 + "\0" + _TOWER, 3001),
    "control character": ("x = 1\nx = \x01\n" + _TOWER, 2),
    "byte order mark later": ("x = 1\n\ufeff" + _TOWER, 2),
    "invisible space": ("x = 1\nx\u00a0= 2\n" + _TOWER, 2),
    "curly quotes": ("x = 1\ny = \u201ca\u201d\n" + _TOWER, 2),
    "long dash": ("x = 1 \u2013 2\n" + _TOWER, 1),
    "replaced character": ("x = \ufffd\n" + _TOWER, 1),
    "deep brackets": ("x = 1\ny = " + "(" * 300 + ")" * 300 + "\n" + _TOWER, 2),
    "deep names": ("x = 1\ny = x" + ".y" * 900 + "\n" + _TOWER, 2),
    "deep operators": ("x = 1\n\ny = 1" + " + 1" * 900 + "\n" + _TOWER, 3),
    "comment": ("# nothing\n", 1),
    "no class": ("x = 1\n", 1),
    "no class in a long text": ("x = 1\n" * 3000, 1),
    "constant": ("UserModel = 3\n", 1),
    "function": ("def UserModel(x): pass\n", 1),
    "None": ("UserModel = build_model = None\n", 1),
    "build_model is a number": ("build_model = 3\n", 1),
    "class in a function": ("def f():\n" + "".join(f"    {line}\n" for line in _TOWER.splitlines()), 1),
    "another class": ("x = 1\n" + _TOWER.replace("UserModel", "Net"), 2),
    "another class, by a base": ("class A: pass\nclass B(Model): pass\n" + _TOWER.replace("UserModel(Tower)", "C(B)"), 2),
    "another name": ("x = 1\n" + _TOWER.replace("UserModel", "usermodel"), 2),
    "not a tower": ("\nclass UserModel(object):" + _PROPERTIES, 2),
    "not a tower in Python 2": ("print 'x'\nclass UserModel:" + _PROPERTIES, 2),
    "not a tower, by bases": ("class A: pass\nclass UserModelOfTower(A): pass\nclass UserModel(UserModelOfTower):" + _PROPERTIES, 3),
    "not a tower, by an alias": ("class Net(object):" + _PROPERTIES + "\nUserModel = Net\n", 1),
    "own Tower": ("class Tower: pass\n" + _TOWER, 2),
    "no inference": (_TOWER.replace("def inference", "def output"), 1),
    "no loss": ("x = 1\n" + _TOWER.replace("def loss", "def cost"), 2),
    "no loss in a long text": ("x = 1\n" * 3000 + _TOWER.replace("def loss", "def cost"), 3001),
    "no loss in Python 2": ("print 'x'\n" + _TOWER.replace("def loss", "def cost"), 2),
    "no loss in bases": ("class UserModelBase(Tower): pass\nclass UserModel(UserModelBase):\n    inference = property(len)\n", 2),
    "no loss of an alias": ("\nclass Net(Tower):\n    inference = property(len)\n\nUserModel = Net\n", 2),
    "loss of an object only": ("class UserModel(Tower):\n    inference = property(len)\n    def __init__(self):\n        self.loss = 3\n", 1),
    "inference is None": ("class UserModel(Tower):\n    inference = None\n    loss = property(len)\n", 1),
    "inference is no property": (_TOWER.replace("    @model_property\n", "", 1), 3),
    "loss is no property": (_TOWER.replace("    @model_property\n    def loss", "    def loss"), 7),
    "loss of a base is no property": ("class A(Tower):\n    inference = property(len)\n    def loss(self): pass\n\nclass UserModel(A): pass\n", 3),
    "loss is asynchronous": ("class UserModel(Tower):\n    inference = property(len)\n    x = 3\n    async def loss(self): pass\n", 4),
    "redefined": (_TOWER + "\nclass UserModel(Tower): pass\n", 11),
    "redefined as None": (_TOWER + "\nUserModel = None\n", 1),
}  # fmt: skip

SHOWN_WHEN_RUN = (
    "build_model is a number", "class in a function", "constant", "function", "inference is None", "no loss of an alias",
    "None", "not a tower, by an alias", "redefined as None", "redefined",
)  # fmt: skip

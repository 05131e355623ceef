# Auto-encoder: compresses each image into thirty numbers and reconstructs it from them. Needs no labels.
#
# Designed for small images, such as 28x28 grayscale: every pixel is connected to 1000 neurons. 2,837,314
# parameters for 28x28. The output is the reconstructed image, as pixels; TensorBoard shows it beside the
# input.
# Recommended settings: Adam, learning rate 0.001, batches of 64, 30 epochs, no mean subtraction.
#
# paper: Hinton and Salakhutdinov, 2006, “Reducing the Dimensionality of Data with Neural Networks”.
# settings: solver_type=ADAM learning_rate=0.001 lr_policy=fixed batch_size=64 train_epochs=30 use_mean=none
# kinds: image-classification image-processing generic

from keras import layers

# The size of the code, and the widths of the encoder's layers.
CODE = 30
WIDTHS = [1000, 500, 250]


class UserModel(Tower):
    @model_property
    def inference(self):
        height, width, channels = self.input_shape
        net = layers.Flatten()(self.x / 255.0)
        for number, neurons in enumerate(WIDTHS, 1):
            net = self.neurons(net, neurons, f"encoder{number}")
        # No activation: the code is unbounded.
        self.code = layers.Dense(CODE, name="code")(net)
        net = self.code
        for number, neurons in enumerate(reversed(WIDTHS), 1):
            net = self.neurons(net, neurons, f"decoder{number}")
        net = layers.Dense(height * width * channels, name="pixels")(net)
        return 255.0 * tf.reshape(net, [-1, height, width, channels])

    def neurons(self, net, count, name):
        return layers.Dense(count, activation="relu", kernel_initializer="he_normal", name=name)(net)

    @model_property
    def loss(self):
        self.summaries.append(tf.summary.image("original", self.x, max_outputs=4))
        self.summaries.append(
            tf.summary.image("rebuilt", tf.clip_by_value(self.inference, 0, 255), max_outputs=4)
        )
        return digits.mse_loss(self.inference / 255.0, self.x / 255.0)
